"""The hub: one server for every surface."""

from quarterdeck.server.app import hub_app, hub_endpoints
from quarterdeck.server.hub import Hub
from quarterdeck.server.logs import log_to
from quarterdeck.server.options import (
    AgentSettings,
    HubOptions,
    Policy,
    PolicyRule,
    default_home,
)
from quarterdeck.server.serving import Address, serve_hub, serving

__all__ = [
    "Address",
    "AgentSettings",
    "Hub",
    "HubOptions",
    "Policy",
    "PolicyRule",
    "default_home",
    "hub_app",
    "hub_endpoints",
    "log_to",
    "serve_hub",
    "serving",
]

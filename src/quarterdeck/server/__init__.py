"""The hub: one server for every surface."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quarterdeck.server.app import hub_app, hub_endpoints
    from quarterdeck.server.hub import Hub
    from quarterdeck.server.known_agents import AgentSettings
    from quarterdeck.server.logs import log_to
    from quarterdeck.server.options import HubOptions, default_home
    from quarterdeck.server.policy_rules import Policy, PolicyRule
    from quarterdeck.server.running import Address, serve_hub, serving

# A command that talks to a running hub needs a few names of this package and no server.
_HOMES = {
    "Address": "running",
    "AgentSettings": "known_agents",
    "Hub": "hub",
    "HubOptions": "options",
    "Policy": "policy_rules",
    "PolicyRule": "policy_rules",
    "default_home": "options",
    "hub_app": "app",
    "hub_endpoints": "app",
    "log_to": "logs",
    "serve_hub": "running",
    "serving": "running",
}

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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

"""The hub: devices, HTTP, streams, push, the page and editors, over a runner."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quarterdeck.hub.hub import Hub
    from quarterdeck.hub.json_logging import log_to
    from quarterdeck.hub.options import HubOptions, default_home
    from quarterdeck.hub.server import Address, hub_app, hub_endpoints, serve_hub, serving

# Commands that talk to a running hub need a few of these names and no server.
_MODULES = {
    "Address": "server",
    "Hub": "hub",
    "HubOptions": "options",
    "default_home": "options",
    "hub_app": "server",
    "hub_endpoints": "server",
    "log_to": "json_logging",
    "serve_hub": "server",
    "serving": "server",
}

__all__ = [
    "Address",
    "Hub",
    "HubOptions",
    "default_home",
    "hub_app",
    "hub_endpoints",
    "log_to",
    "serve_hub",
    "serving",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

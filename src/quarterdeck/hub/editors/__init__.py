"""Editors at the hub: ACP in, the hub's sessions behind it."""

from quarterdeck.hub.editors.endpoints import acp_endpoints

__all__ = ["acp_endpoints"]

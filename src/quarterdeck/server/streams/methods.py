"""What a device must be allowed for each method of the envelopes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quarterdeck.protocol import AcpRpcMethod, RpcRequest
from quarterdeck.server.device import Scope

METHOD_SCOPES: Final[Mapping[str, Scope]] = {
    AcpRpcMethod.LIST_AGENTS: "view",
    AcpRpcMethod.GET_ALL_SESSIONS: "view",
    AcpRpcMethod.LIST_SESSIONS: "view",
    AcpRpcMethod.CREATE_SESSION: "prompt",
    AcpRpcMethod.LOAD_SESSION: "prompt",
    AcpRpcMethod.RESUME_SESSION: "prompt",
    AcpRpcMethod.RESTORE_SESSIONS: "prompt",
    AcpRpcMethod.PROMPT: "prompt",
    AcpRpcMethod.CANCEL: "prompt",
    AcpRpcMethod.CLOSE_SESSION: "prompt",
    AcpRpcMethod.SET_MODE: "approve",  # it can let the agent do everything unasked
    AcpRpcMethod.SET_CONFIG_OPTION: "approve",
    AcpRpcMethod.DELETE_SESSION: "admin",
    AcpRpcMethod.SPAWN_AGENT: "admin",
    AcpRpcMethod.DISPOSE_AGENT: "admin",
    AcpRpcMethod.AUTHENTICATE: "admin",
    AcpRpcMethod.LOGOUT: "admin",
}
"""A method that is not here needs "admin"."""


ANSWER_SCOPE: Final[Scope] = "approve"


def needed_scope(request: RpcRequest) -> Scope:
    """Return what a device must be allowed to make a call: MCP servers are commands."""
    if request.params.get("mcpServers"):
        return "admin"
    return METHOD_SCOPES.get(request.method, "admin")

"""`RunnerEndpoint`: the host as envelopes (seed 003), as a runner offers it."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from quarterdeck.host import Host, HostEndpoint
from quarterdeck.protocol import AcpRpcMethod, ErrorObject, RpcRequest, RpcResponse
from quarterdeck.runner.sessions.manager import SessionManager

_DRAINING = ErrorObject(
    code="quarterdeck/unavailable",
    message="the runner is about to restart and starts no new turns; send the prompt again"
    " afterwards",
    retryable=True,
)


class RunnerEndpoint(HostEndpoint):
    """Starts no turn while the runner drains."""

    def __init__(self, host: Host, owner: SessionManager, is_draining: Callable[[], bool]) -> None:
        super().__init__(host, owner)
        self._is_draining = is_draining

    @override
    async def request(self, request: RpcRequest) -> RpcResponse:
        if request.method == AcpRpcMethod.PROMPT and self._is_draining():
            return RpcResponse(id=request.id, ok=False, error=_DRAINING)
        return await super().request(request)

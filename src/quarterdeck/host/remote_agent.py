"""An agent at a URL: a connection instead of a process, with the same states and restarts.

    of a process                  of an agent at a URL
    it is started                 the transport is opened; the agent is reached by `initialize`
    it exits                      the connection ends, or a stream breaks that cannot be resumed
    it is started again           connected again, by the restart rules
    its end is awaited, killed    the connection is closed; the agent decides what that means

It is not on this machine, so nothing here confines it; what it may do through the host (files,
terminals, permission requests) is what every agent may do.
"""

from __future__ import annotations

import anyio
from typing_extensions import override

from quarterdeck.errors import ConfinementUnavailable
from quarterdeck.host.agent_process import UPDATE_VOCABULARY, VERSION_1_NEXT, AgentProcess
from quarterdeck.http import open_remote, shown_url
from quarterdeck.protocol import AgentExitReason
from quarterdeck.wire import (
    ByteTransport,
    Connection,
    ConnectionOptions,
    cancel_when,
    open_connection,
)


class RemoteAgent(AgentProcess):
    """One agent under one id, through all its connections."""

    @override
    async def _run_process(self) -> AgentExitReason | None:
        self._set_status("spawning")
        url, headers = self.definition.url, self.definition.headers or {}
        assert url is not None, "only an agent with a url is a RemoteAgent"
        for value in headers.values():
            self.secrets.add((value, value.rpartition(" ")[2]))
        try:
            await self._confined_start()
        except ConfinementUnavailable as error:
            self._diagnose("error", "agent/spawn-failed", str(error))
            self._fail_start(str(error))
            return "spawn-failed"
        async with open_remote(url, headers) as transport:
            facts = {"url": shown_url(url), "headerNames": sorted(headers)}
            self._diagnose("info", "agent/spawn", f"connecting to {shown_url(url)}", facts)
            return await self._serve_remote(transport)

    async def _serve_remote(self, transport: ByteTransport) -> AgentExitReason | None:
        """Serve one connection to its end; return None if it is to be opened with version 1."""
        self._exit = None
        self._disconnected, self._ending = anyio.Event(), anyio.Event()
        self._set_status("initializing")
        options = ConnectionOptions(
            vocabulary=UPDATE_VOCABULARY,
            on_report=self._on_report,
            answers_garbage=False,
            after_read=self._after_read,
        )
        async with open_connection(
            transport,
            on_notification=self._on_notification,
            on_request=self._on_request,
            options=options,
        ) as connection:
            self._connection = connection
            failure = await self._initialize(connection)
            is_next = failure is VERSION_1_NEXT and not self._disposal.is_set()
            if failure is not None and not is_next and not self._disposal.is_set():
                self._fail_initialize(failure)
            elif failure is None:
                await self._wait_over(connection)
        self._exit = {}
        reason = self.secrets.hidden(await transport.explain_end())
        self._diagnose("info", "agent/exit", f"disconnected: {reason}")
        self._disconnect()
        if is_next:
            return None
        self._fail_start(f"agent {self.id} ended before it was ready")
        return "crashed" if failure is None else "initialize-failed"

    async def _wait_over(self, connection: Connection) -> None:
        """Wait until the connection has ended, or has to end."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_when, self._disposal, tasks.cancel_scope)
            tasks.start_soon(cancel_when, self._ending, tasks.cancel_scope)
            await connection.wait_closed()
            tasks.cancel_scope.cancel()

"""`ClientProxy`: the client as an agent's code sees it: its capabilities, and typed calls to it.

A call that needs a capability which the client did not declare raises `AgentError` at once instead
of sending a request that the client would reject.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

from quarterdeck.acp import Method, methods, schema, to_dict
from quarterdeck.agent.checks import Json
from quarterdeck.errors import AgentError
from quarterdeck.wire import Connection


class ClientFacts:
    """Name and capabilities that a client declared with `initialize`."""

    def __init__(self, info: Json | None = None, capabilities: Json | None = None) -> None:
        self.info = info or {}
        self.capabilities = capabilities or {}

    def _can(self, *path: str) -> bool:
        value: Any = self.capabilities
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value is True or isinstance(value, Mapping)

    @property
    def can_read_files(self) -> bool:
        return self._can("fs", "readTextFile")

    @property
    def can_write_files(self) -> bool:
        return self._can("fs", "writeTextFile")

    @property
    def has_terminals(self) -> bool:
        return self._can("terminal")

    @property
    def can_show_switches(self) -> bool:
        """Whether it can show boolean config options."""
        return self._can("session", "configOptions", "boolean")

    @property
    def can_authenticate_in_terminal(self) -> bool:
        """Whether it can run an agent's command for its user to sign in."""
        return self._can("auth", "terminal")

    @property
    def can_elicit(self) -> bool:
        """Whether it can show a form to its user."""
        return self._can("elicitation", "form")

    @property
    def can_elicit_by_url(self) -> bool:
        return self._can("elicitation", "url")


class ClientProxy(ClientFacts):
    """The client of one session.

    Every call raises `RpcError` if the client responds with an error, `ConnectionFailed` if it does
    not respond, and `AgentError` if it did not declare the capability.
    """

    def __init__(
        self,
        connection: Connection,
        session_id: str,
        facts: ClientFacts,
        requesting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`requesting` is entered while a request waits for the user."""
        super().__init__(facts.info, facts.capabilities)
        self._connection = connection
        self._session_id = session_id
        self._requesting = requesting

    async def read_text_file(
        self, path: Path | str, *, line: int | None = None, limit: int | None = None
    ) -> str:
        """Read a file as the client's editor has it, including unsaved changes."""
        self._require("reading files", can=self.can_read_files)
        window = {"line": line, "limit": limit}
        given = {name: value for name, value in window.items() if value is not None}
        response = await self._call(methods.FS_READ_TEXT_FILE, path=str(path), **given)
        content: str = response.content
        return content

    async def write_text_file(self, path: Path | str, content: str) -> None:
        self._require("writing files", can=self.can_write_files)
        await self._call(methods.FS_WRITE_TEXT_FILE, path=str(path), content=content)

    async def create_terminal(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        output_byte_limit: int | None = None,
    ) -> Terminal:
        """Start a command in a terminal of the client; leaving `async with` releases it."""
        self._require("terminals", can=self.has_terminals)
        given: dict[str, Any] = {"command": command, "args": list(args)}
        if cwd is not None:
            given["cwd"] = str(cwd)
        if env is not None:
            given["env"] = [{"name": name, "value": value} for name, value in env.items()]
        if output_byte_limit is not None:
            given["outputByteLimit"] = output_byte_limit
        created = await self._call(methods.TERMINAL_CREATE, **given)
        return Terminal(self, created.terminal_id)

    async def elicit(
        self, message: str, requested_schema: Json, *, tool_call_id: str | None = None
    ) -> dict[str, Any]:
        """Ask the user to fill in a form.

        Returns the answer: `{"action": "accept", "content": {…}}`, or "decline" or "cancel".
        """
        self._require("forms", can=self.can_elicit)
        tool_call = {} if tool_call_id is None else {"toolCallId": tool_call_id}
        with self._requesting():
            response = await self._call(
                methods.ELICITATION_CREATE,
                mode="form",
                message=message,
                requestedSchema=requested_schema,
                **tool_call,
            )
        answer: dict[str, Any] = to_dict(response)
        return answer

    async def elicit_by_url(
        self, message: str, url: str, elicitation_id: str, *, tool_call_id: str | None = None
    ) -> dict[str, Any]:
        """Ask the user to open a URL, for example to log in; returns what `elicit` returns.

        "accept" means that the user opens it. When the agent learns that the user has finished
        there, it calls `complete_elicitation`.
        """
        self._require("opening addresses", can=self.can_elicit_by_url)
        tool_call = {} if tool_call_id is None else {"toolCallId": tool_call_id}
        with self._requesting():
            response = await self._call(
                methods.ELICITATION_CREATE,
                mode="url",
                message=message,
                url=url,
                elicitationId=elicitation_id,
                **tool_call,
            )
        answer: dict[str, Any] = to_dict(response)
        return answer

    async def complete_elicitation(self, elicitation_id: str) -> None:
        """Notify the client that the user has finished at the URL."""
        self._require("opening addresses", can=self.can_elicit_by_url)
        named = {"elicitationId": elicitation_id}
        await self._connection.notify(methods.ELICITATION_COMPLETE.name, named)

    async def call(self, method: str, params: Json) -> Any:
        """Call an extension method, such as `_example/open`."""
        return await self._connection.call(method, params)

    async def _call(self, method: Method[Any, Any], /, **params: Any) -> Any:
        named = {"sessionId": self._session_id, **params}
        return await self._connection.call(method.name, named, read=method.read_response)

    def _require(self, what: str, *, can: bool) -> None:
        if not can:
            name = self.info.get("name") or "this client"
            raise AgentError(f"{name} does not offer {what}")


class Terminal:
    """A command that runs in a terminal of the client."""

    def __init__(self, client: ClientProxy, terminal_id: str) -> None:
        self._client = client
        self.id = terminal_id

    async def __aenter__(self) -> Terminal:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.release()

    async def output(self) -> schema.TerminalOutputResponse:
        """Return the output so far, and the exit status if the command has ended."""
        response: schema.TerminalOutputResponse = await self._call(methods.TERMINAL_OUTPUT)
        return response

    async def wait_for_exit(self) -> schema.WaitForTerminalExitResponse:
        response: schema.WaitForTerminalExitResponse = await self._call(
            methods.TERMINAL_WAIT_FOR_EXIT
        )
        return response

    async def kill(self) -> None:
        """Kill the command; its output can still be read."""
        await self._call(methods.TERMINAL_KILL)

    async def release(self) -> None:
        """Kill the command and free the terminal."""
        await self._call(methods.TERMINAL_RELEASE)

    async def _call(self, method: Method[Any, Any]) -> Any:
        return await self._client._call(method, terminalId=self.id)  # noqa: SLF001 - its other half

"""The connection to an agent with ACP 2, with the calls of ACP 1.

The host calls `session/load`, `session/prompt` and so on as ever; this class sends what ACP 2 has
for it and gives the answers back in the words of ACP 1.

| call of ACP 1               | sent                                                               |
| --------------------------- | -------------------------------------------------------------------|
| `session/load`              | `session/resume` with `replayFrom: {type: "start"}`                |
| `session/new`, `resume`,    | the same; MCP servers with their `type`, options renamed           |
| `fork`                      |                                                                    |
| `session/set_config_option` | the same; a value has the type `id` or `boolean`                   |
| `session/prompt`            | the same, but the answer is the end of the turn                    |
| `authenticate`, `logout`    | `auth/login`, `auth/logout`                                        |

**Turns.** An agent answers `session/prompt` when the message is inserted, which can be long after
other work; there is no timeout. The turn ends with a `state_update` to `idle` after the insertion.
An `idle` that arrives before the answer belongs to other work, unless the agent has sent the
message of that answer before it. An error answer ends the turn at once, unless work has begun: then
the `idle` that follows ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import anyio

from quarterdeck.errors import ConnectionClosed, RpcError
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.protocol import Normalized
from quarterdeck.protocol.acp2_options import options_from_acp2
from quarterdeck.wire import Connection, Failure, Result, read_error

OnResponse = Callable[[Result | Failure], None]
CANCELLED: Final = -32800
_METHODS: Final = {
    "session/load": "session/resume",
    "authenticate": "auth/login",
    "logout": "auth/logout",
}
_OPENING: Final = ("session/new", "session/load", "session/resume", "session/fork")
_ID: Final = b"0"  # of answers that are made here; nothing reads it


class AgentConnection(Protocol):
    """What the host uses of a connection to an agent, of either version."""

    async def call(
        self,
        method: str,
        params: Any = None,
        *,
        timeout_seconds: float | None = None,
        on_response: OnResponse | None = None,
    ) -> Any: ...
    async def notify(self, method: str, params: Any = None) -> None: ...
    def post(self, method: str, params: Any = None) -> None: ...


class PendingPrompt:
    """A prompt whose turn has not ended."""

    def __init__(self, on_response: OnResponse | None) -> None:
        self._on_response = on_response
        self.ended = anyio.Event()
        self.message_id: str | None = None
        """The id of its message, once it is inserted."""
        self.echo_id: str | None = None
        """The id of the first user message since it was sent: the agent repeats the prompt."""
        self.failure: Failure | None = None
        """An error answer that came while the agent was at work."""
        self.has_worked = False
        self.held_back: list[Normalized] = []
        """The events of that message, until the answer says whether it is the prompt."""
        self.on_named: Callable[[], None] | None = None
        """Called when the answer has named its message."""
        self._unclaimed: dict[str, Any] | None = None
        """An `idle` from before the answer, if the message was seen before it."""

    def on_state(self, update: Mapping[str, Any], *, was_working: bool) -> None:
        """Take a state that the agent reports."""
        if update.get("state") != "idle":
            self.has_worked = True
            return
        if self.failure is not None:
            self.finish(self.failure)
        elif self.message_id is not None and (was_working or self.has_worked):
            self.finish(idle_answer(update))
        elif was_working and self.echo_id is not None:
            self._unclaimed = dict(update)

    def on_inserted(self, answer: Result | Failure) -> None:
        """Take the agent's answer to `session/prompt`."""
        if isinstance(answer, Failure):
            error = read_error(answer.error)
            if error.code == CANCELLED:
                self.finish(Result(_ID, encode_json({"stopReason": "cancelled"})))
            elif self.has_worked and self._unclaimed is None:
                self.failure = answer
            else:
                self.finish(answer)
            return
        result = decode_json(answer.value)
        message_id = result.get("messageId") if isinstance(result, dict) else None
        self.message_id = message_id if isinstance(message_id, str) else ""
        if self.on_named is not None:
            self.on_named()
        if self._unclaimed is not None and self.message_id in ("", self.echo_id):
            self.finish(idle_answer(self._unclaimed))

    def finish(self, answer: Result | Failure) -> None:
        if not self.ended.is_set():
            self.ended.set()
            if self._on_response is not None:
                self._on_response(answer)


def idle_answer(update: Mapping[str, Any]) -> Result | Failure:
    """Return the end of a turn as the answer to a prompt of ACP 1."""
    reason, error = update.get("stopReason"), update.get("error")
    if reason == "error" or isinstance(error, Mapping):
        return Failure(_ID, encode_json(_error(error)))
    answer: dict[str, Any] = {"stopReason": "end_turn" if reason is None else reason}
    for name in ("usage", "_meta"):
        if update.get(name) is not None:
            answer[name] = update[name]
    return Result(_ID, encode_json(answer))


def _error(error: Any) -> dict[str, Any]:
    given = error if isinstance(error, Mapping) else {}
    code, message = given.get("code"), given.get("message")
    facts: dict[str, Any] = {
        "code": code if isinstance(code, int) else -32603,
        "message": message if isinstance(message, str) else "the agent failed and did not say why",
    }
    if given.get("data") is not None:
        facts["data"] = given["data"]
    return facts


class Acp2Connection:
    """A connection to an agent with ACP 2."""

    def __init__(
        self,
        connection: Connection,
        on_update: Callable[[str, dict[str, Any]], None],
        report_dropped: Callable[..., None],
    ) -> None:
        """`on_update` takes what an answer says of a session and ACP 1 has as an update.

        `report_dropped` is that of the agent, for an answer to a prompt that is no object.
        """
        self._connection = connection
        self._on_update = on_update
        self._report_dropped = report_dropped
        self.prompts: dict[str, PendingPrompt] = {}
        """The pending prompts, by session."""
        self.own_turns: set[str] = set()
        """Sessions whose agent works without a prompt."""

    def prompt_of(self, session_id: str) -> PendingPrompt | None:
        """Return the prompt of a session whose turn has not ended."""
        prompt = self.prompts.get(session_id)
        return None if prompt is None or prompt.ended.is_set() else prompt

    async def call(
        self,
        method: str,
        params: Any = None,
        *,
        timeout_seconds: float | None = None,
        on_response: OnResponse | None = None,
    ) -> Any:
        """Call a method of ACP 1; see the table at the top of the module."""
        given: dict[str, Any] = dict(params or {})
        if method == "session/prompt":
            return await self._prompt(given, on_response)

        def answered(answer: Result | Failure) -> None:
            if isinstance(answer, Result) and method in _CHANGED:
                result = decode_json(answer.value)
                self._take_commands(given, result)
                answer = Result(answer.id, encode_json(_result_as_acp1(result)))
            if on_response is not None:
                on_response(answer)

        result: Any = await self._connection.call(
            _METHODS.get(method, method),
            _params(method, given),
            timeout_seconds=timeout_seconds,
            on_response=answered,
        )
        return _result_as_acp1(result) if method in _CHANGED else result

    def _take_commands(self, params: dict[str, Any], result: Any) -> None:
        """Report the commands in an answer before the answer: with it the session is open."""
        given = result if isinstance(result, dict) else {}
        commands = given.get("availableCommands")
        session_id = given.get("sessionId", params.get("sessionId"))
        if isinstance(commands, list) and isinstance(session_id, str):
            update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
            self._on_update(session_id, update)

    async def notify(self, method: str, params: Any = None) -> None:
        await self._connection.notify(method, params)

    def post(self, method: str, params: Any = None) -> None:
        self._connection.post(method, params)

    async def _prompt(self, params: dict[str, Any], on_response: OnResponse | None) -> Any:
        session_id = params["sessionId"]
        prompt = self.prompts[session_id] = PendingPrompt(on_response)

        def inserted(answer: Result | Failure) -> None:
            if isinstance(answer, Result) and not answer.value.lstrip().startswith(b"{"):
                method = "session/prompt"
                message = f"the agent answered {method} without a result"
                self._report_dropped("agent/answer-empty", method, message, method=method)
            prompt.on_inserted(answer)

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_when_closed, tasks.cancel_scope)
                with suppress(RpcError):  # `on_inserted` has it
                    await self._connection.call("session/prompt", params, on_response=inserted)
                await prompt.ended.wait()
                tasks.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            if self.prompts.get(session_id) is prompt:
                del self.prompts[session_id]
        if not prompt.ended.is_set():
            reason = self._connection.end_reason
            raise ConnectionClosed(f"session/prompt was not answered: {reason}")
        return None

    async def _end_when_closed(self, scope: anyio.CancelScope) -> None:
        await self._connection.wait_closed()
        scope.cancel()


_CHANGED: Final = frozenset({*_OPENING, "session/set_config_option"})


def _params(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method in _OPENING and "mcpServers" in params:
        params["mcpServers"] = [_server(each) for each in params["mcpServers"]]
    if method == "session/load":
        params["replayFrom"] = {"type": "start"}
    if method == "session/set_config_option":
        is_switch = isinstance(params.get("value"), bool)
        params["type"] = "boolean" if is_switch else "id"
    return params


def _server(server: Mapping[str, Any]) -> dict[str, Any]:
    """Return an MCP server with its type, which one of stdio lacks in ACP 1."""
    return {"type": "stdio", **server}


def _result_as_acp1(result: Any) -> Any:
    options = result.get("configOptions") if isinstance(result, dict) else None
    if not isinstance(options, list):
        return result
    return {**result, "configOptions": options_from_acp2(options)[0]}

"""Every exception that this package raises on purpose.

A message is one sentence: what happened; what to do next. Messages contain no internal names, since
commands and the HTTP API show them as they are.

QuarterdeckError
├── AcpError                a host, client or transport call failed with an `acpjs/*` code
│   └── TurnFailed              a turn ended with an error of the agent
├── ProtocolError           a peer, a file or a stored log broke the rules
│   ├── EventInvalid            data that is not an event
│   ├── JsonInvalid             text that is not JSON
│   ├── LinkBroken              a runner or a hub sent what the link between them does not allow
│   ├── LogGap                  an event that does not continue the numbering of its session
│   ├── SchemaMismatch          JSON that does not match ACP's schema
│   └── SourceRewritten         a foreign session whose file is not what was read before
├── ConnectionFailed        a JSON-RPC call could not be completed
│   ├── ConnectionClosed        the connection ended before the call was complete
│   ├── CallTimedOut            no answer within the timeout
│   └── AnswerInvalid           an answer that does not have the type of the method
├── RpcError                a JSON-RPC error, received or to be sent
├── StorageRefused          a log that cannot be opened; nothing was changed
├── StorageFailed           an open log that could not be written or read
│   ├── LogDamaged              events of one session that are not what was stored
│   └── LogFenced               records of some sessions that the log does not accept
├── StartRefused            a hub or a runner that cannot start with its settings, or with its files
├── DatabaseFailed          hub.db or runner.db could not be written or read
├── ConfinementUnavailable  a command must be confined, and this machine cannot do it
├── AgentNotFound           the command that starts an agent does not exist
├── InstallFailed           an agent could not be installed, updated or removed
├── ModelFailed             a language model gave no answer
├── SettingsInvalid         unusable settings of the built-in agent
├── ToolFailed              a tool of the built-in agent failed
├── AgentError              an error that an agent reports to its client
├── Misused                 an invalid command line
├── CommandFailed           a command that failed
├── HubDeclined             the hub rejected a request of a command
├── RequestRejected         the hub or the runner rejects a request, with a code
└── ScenarioInvalid         a scenario of the scripted agent that cannot be played
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

REPAIR: Final = "quarterdeck repair"
"""The command that a message about damage names."""
_DETAILS: Final = 1000  # characters of an agent's text that a message may contain


class QuarterdeckError(Exception):
    """Base class; catch it only at an outer edge (command line, HTTP handler)."""


class AcpError(QuarterdeckError):
    """A host, client or transport call failed; `code` is one of `protocol.ERROR_CODES`."""

    def __init__(
        self, code: str, message: str, *, data: Any = None, retryable: bool | None = None
    ) -> None:
        """By default only a call that failed on a closed transport is retryable."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.retryable = code == "acpjs/transport-closed" if retryable is None else retryable


class TurnFailed(AcpError):
    """A turn ended with an error of the agent; raised by `PromptResult.raise_for_error` only."""

    def __init__(self, reason: str, rpc_code: int, data: Any = None) -> None:
        super().__init__("acpjs/agent-error", f"the turn failed: {reason[:_DETAILS]}", data=data)
        self.reason = reason
        """The agent's words."""
        self.rpc_code = rpc_code
        """The code of its JSON-RPC error."""


class ProtocolError(QuarterdeckError):
    """A peer, a file or a stored log broke the rules."""


class EventInvalid(ProtocolError):
    """Data is not an event."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not an event: {reason}")
        self.reason = reason


class JsonInvalid(ProtocolError):
    """A text is not JSON, or is nested too deeply."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not JSON: {reason}")
        self.reason = reason


class LinkBroken(ProtocolError):
    """The other side of the link between a runner and a hub broke its rules; the link ends."""


class LogGap(ProtocolError):
    """An event does not continue the numbering of its session; nothing of its batch was stored."""

    def __init__(self, session_id: str, *, expected: int, seq: int) -> None:
        super().__init__(f"the next event of {session_id!r} must be {expected}, not {seq}")
        self.session_id = session_id
        self.expected = expected
        self.seq = seq


class SchemaMismatch(ProtocolError):
    """JSON does not match a type of ACP, even when read leniently."""

    def __init__(self, expected: str, reason: str) -> None:
        super().__init__(f"not a valid {expected}: {reason}")
        self.expected = expected
        self.reason = reason


class SourceRewritten(ProtocolError):
    """The file of a foreign session is not what was read before: it was cut or replaced."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} was truncated or replaced after it was read; reading it again")
        self.path = path


class ConnectionFailed(QuarterdeckError):
    """A JSON-RPC call could not be completed."""


class ConnectionClosed(ConnectionFailed):
    """The connection ended before the call was complete."""


class CallTimedOut(ConnectionFailed):
    """The other side did not answer within the timeout."""

    def __init__(self, method: str, seconds: float) -> None:
        super().__init__(f"{method} was not answered within {seconds:g} s; it was cancelled")
        self.method = method
        self.seconds = seconds


class AnswerInvalid(ConnectionFailed):
    """The other side answered with data that does not have the type of the method."""

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(f"the answer to {method} cannot be read: {reason}")
        self.method = method
        self.reason = reason


class RpcError(QuarterdeckError):
    """A JSON-RPC error: the answer to a call; raise it in a handler to answer with one."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data

    @property
    def explanation(self) -> str:
        """The message and its details: "Internal error" alone does not help."""
        details = self.data.get("details") if isinstance(self.data, Mapping) else self.data
        if not isinstance(details, str) or not details.strip() or details in self.message:
            return self.message
        shown = details if len(details) <= _DETAILS else f"{details[:_DETAILS]}..."
        return f"{self.message}: {shown}"


class StorageRefused(QuarterdeckError):
    """A log cannot be opened; it was not changed."""

    def __init__(self, path: object, reason: str, remedy: str) -> None:
        super().__init__(f"cannot use {path} as a log: {reason}; {remedy}")
        self.path = str(path)
        self.reason = reason
        self.remedy = remedy


class StorageFailed(QuarterdeckError):
    """An open log could not be written or read; nothing of the batch was stored.

    Attributes:
        is_final: whether retrying is useless until the log is opened again.
    """

    def __init__(self, path: object, reason: str, remedy: str, *, is_final: bool = False) -> None:
        super().__init__(f"the log {path} failed: {reason}; {remedy}")
        self.is_final = is_final
        self.path = str(path)
        self.reason = reason
        self.remedy = remedy

    @property
    def public_message(self) -> str:
        """The message without the path, for clients."""
        return f"the log failed: {self.reason}; {self.remedy}"

    def again(self) -> Self:
        """Return a copy for another caller: a raised exception collects tracebacks."""
        copied = type(self).__new__(type(self), *self.args)
        copied.__dict__.update(self.__dict__)
        return copied


class LogDamaged(StorageFailed):
    """Events of one session are not what was stored; other sessions are not affected."""

    def __init__(self, path: object, session_id: str, reason: str) -> None:
        """`reason` names the session and the events."""
        remedy = (
            "other sessions still work; to recover the intact data, run quarterdeck down, then "
            + REPAIR
        )
        super().__init__(path, reason, remedy, is_final=True)
        self.session_id = session_id


class LogFenced(StorageFailed):
    """A log does not accept records of some sessions; nothing of the batch was stored.

    The records of other sessions can be appended again without them.

    Attributes:
        sessions: why, as a clause, by session.
    """

    def __init__(self, path: object, sessions: Mapping[str, str]) -> None:
        named = ", ".join(f"{session_id}: {reason}" for session_id, reason in sessions.items())
        remedy = "other sessions still work; start a new session to continue"
        super().__init__(path, f"it accepts no events for {named}", remedy, is_final=True)
        self.sessions = dict(sessions)


class StartRefused(QuarterdeckError):
    """A hub or a runner cannot start: its settings or its files are unsafe or unusable."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


class DatabaseFailed(QuarterdeckError):
    """hub.db or runner.db could not be written or read; nothing was changed."""

    def __init__(self, path: object, reason: str, remedy: str) -> None:
        super().__init__(f"the database {path} failed: {reason}; {remedy}")
        self.path = str(path)
        self.reason = reason
        self.remedy = remedy

    @property
    def public_message(self) -> str:
        """The message without the path, for clients."""
        return f"the database failed: {self.reason}; {self.remedy}"


class AgentNotFound(QuarterdeckError):
    """The command that starts an agent does not exist or may not be run."""

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(
            f"cannot start {command!r}: {reason}; install it, or add its folder to PATH"
        )
        self.command = command
        self.reason = reason


class InstallFailed(QuarterdeckError):
    """An agent could not be installed, updated or removed; what was there before still works."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


class ConfinementUnavailable(QuarterdeckError):
    """A command must be confined, and this machine cannot do it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"it must be confined, and that is not possible here: {reason}")
        self.reason = reason


class ModelFailed(QuarterdeckError):
    """A language model gave no answer.

    Attributes:
        reason: which of `agent.builtin.model.FAILURES` it was.
        retry_after: seconds to wait, if the provider named them.
    """

    def __init__(self, reason: str, sentence: str, *, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.retry_after = retry_after


class SettingsInvalid(QuarterdeckError):
    """Settings of the built-in agent cannot be used."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class ToolFailed(QuarterdeckError):
    """A tool failed; the model reads the message and may try something else."""


class AgentError(QuarterdeckError):
    """Raised by an agent to reject a request or to give up; its client gets `message`."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Misused(QuarterdeckError):
    """The command line is invalid; the exit status is 2."""


class CommandFailed(QuarterdeckError):
    """A command failed; the sentence says what to do next.

    Attributes:
        status: the exit status.
    """

    def __init__(self, sentence: str, *, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


class HubDeclined(QuarterdeckError):
    """The hub rejected a request."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class RequestRejected(QuarterdeckError):
    """A request is rejected; the client gets its code, message and data.

    Each surface derives its own status from the code; the HTTP API has a table of statuses.
    """

    def __init__(
        self, code: str, message: str, *, data: Any = None, retryable: bool = False
    ) -> None:
        """`code` is written without its prefix `quarterdeck/`."""
        super().__init__(message)
        self.code = f"quarterdeck/{code}"
        self.message = message
        self.data = data
        self.retryable = retryable


class ScenarioInvalid(QuarterdeckError):
    """A scenario file for the scripted agent cannot be played."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"cannot play {source}: {reason}")
        self.source = source
        self.reason = reason

"""Every exception this package raises on purpose.

QuarterdeckError
├── AcpError                a host, client or transport call failed with an `acpjs/*` code
├── ProtocolError           a peer, a file or a stored log broke the rules
│   ├── EventInvalid            an event that is not one
│   ├── JsonInvalid             text that is not JSON
│   ├── LogGap                  an event that does not continue the numbering of its session
│   └── SchemaMismatch          JSON that is not what ACP's schema says
├── ConnectionFailed        a JSON-RPC call could not be completed
│   ├── ConnectionClosed        the connection ended while we still needed it
│   ├── CallTimedOut            no answer within the time given
│   └── AnswerInvalid           the answer cannot be read as what the method promises
├── RpcError                the other side answered, or is to be answered, with a JSON-RPC error
├── StorageRefused          a log that cannot be opened as it is; nothing was changed
├── StorageFailed           an open log that could not be written or read
├── HubRefused              a hub that is set up, or finds on disk, what is not safe or not usable
├── HubDatabaseFailed       the hub's own database could not be written or read
├── AgentNotFound           the command that starts an agent does not exist
├── ModelFailed             a language model gave no answer
├── SettingsInvalid         settings of the built-in agent that cannot be used
├── ToolFailed              a tool of the built-in agent could not do what the model asked
├── AgentError              an agent that we serve refuses, or cannot do what it was asked
├── Misused                 a command line that cannot be understood
├── CommandFailed           a command that could not do what it was asked
├── HubDeclined             the hub answered a request of ours with a refusal
├── RequestRejected         a request that is rejected, with a code
│   └── RequestRefused      the same from the HTTP API, which chose its status
└── ScenarioInvalid         a scenario file for the scripted agent that cannot be played
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_DETAILS: Final = 1000  # characters of an agent's own words that a message has room for


class QuarterdeckError(Exception):
    """Base class; catch it only at an outer edge (CLI, HTTP handler)."""


class AcpError(QuarterdeckError):
    """A host, client or transport call failed; `code` is one of `protocol.ERROR_CODES`."""

    def __init__(
        self, code: str, message: str, *, data: Any = None, retryable: bool | None = None
    ) -> None:
        """Unless it is said, only a call that a closed transport refused may be tried again."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.retryable = code == "acpjs/transport-closed" if retryable is None else retryable


class ProtocolError(QuarterdeckError):
    """A peer, a file or a stored log broke the rules."""


class EventInvalid(ProtocolError):
    """Something was offered as an event that is not one."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not an event: {reason}")
        self.reason = reason


class JsonInvalid(ProtocolError):
    """A text is not JSON, or nests deeper than any message of ours."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not JSON: {reason}")
        self.reason = reason


class LogGap(ProtocolError):
    """An event does not continue the numbering of its session; nothing of its batch was stored."""

    def __init__(self, session_id: str, *, expected: int, seq: int) -> None:
        super().__init__(f"the next event of {session_id!r} must be {expected}, not {seq}")
        self.session_id = session_id
        self.expected = expected
        self.seq = seq


class SchemaMismatch(ProtocolError):
    """JSON was read as a type of ACP that it does not fit, even with patience."""

    def __init__(self, expected: str, reason: str) -> None:
        super().__init__(f"not a valid {expected}: {reason}")
        self.expected = expected
        self.reason = reason


class ConnectionFailed(QuarterdeckError):
    """A JSON-RPC call could not be completed."""


class ConnectionClosed(ConnectionFailed):
    """The connection ended while we still needed it."""


class CallTimedOut(ConnectionFailed):
    """The other side did not answer within the time given."""

    def __init__(self, method: str, seconds: float) -> None:
        super().__init__(f"{method} was not answered within {seconds:g} s; it was cancelled")
        self.method = method
        self.seconds = seconds


class AnswerInvalid(ConnectionFailed):
    """The other side answered with something the method does not promise."""

    def __init__(self, method: str, reason: str) -> None:
        super().__init__(f"the answer to {method} cannot be read: {reason}")
        self.method = method
        self.reason = reason


class RpcError(QuarterdeckError):
    """The other side answered with a JSON-RPC error; raise it in a handler to answer with one."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data

    @property
    def explanation(self) -> str:
        """The message and what came with it: "Internal error" alone helps nobody."""
        details = self.data.get("details") if isinstance(self.data, Mapping) else self.data
        if not isinstance(details, str) or not details.strip() or details in self.message:
            return self.message
        shown = details if len(details) <= _DETAILS else f"{details[:_DETAILS]}..."
        return f"{self.message}: {shown}"


class StorageRefused(QuarterdeckError):
    """A log cannot be opened as it is; it was left as it is."""

    def __init__(self, path: object, reason: str, remedy: str) -> None:
        super().__init__(f"cannot use {path} as a log: {reason}; {remedy}")
        self.path = str(path)
        self.reason = reason
        self.remedy = remedy


class StorageFailed(QuarterdeckError):
    """An open log could not be written or read; nothing of the batch in question was stored.

    Attributes:
        is_final: whether trying again is in vain as long as the log is open.
    """

    def __init__(self, path: object, reason: str, remedy: str, *, is_final: bool = False) -> None:
        super().__init__(f"the log {path} failed: {reason}; {remedy}")
        self.is_final = is_final
        self.path = str(path)
        self.reason = reason
        self.remedy = remedy

    @property
    def told(self) -> str:
        """The same for people elsewhere, who need not know where it is."""
        return f"the log failed: {self.reason}; {self.remedy}"

    def again(self) -> StorageFailed:
        """Return the same for another caller: a raised exception keeps all it went through."""
        return StorageFailed(self.path, self.reason, self.remedy, is_final=self.is_final)


class HubRefused(QuarterdeckError):
    """A hub does not start: what it was told, or what it finds on disk, is not safe or usable."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}; {remedy}")
        self.reason = reason
        self.remedy = remedy


class HubDatabaseFailed(QuarterdeckError):
    """The hub's own database could not be written or read; nothing was changed."""

    def __init__(self, path: object, reason: str, remedy: str) -> None:
        super().__init__(f"the database {path} failed: {reason}; {remedy}")
        self.path = str(path)
        self.reason = reason
        self.remedy = remedy

    @property
    def told(self) -> str:
        """The same for people elsewhere, who need not know where it is."""
        return f"the hub's database failed: {self.reason}; {self.remedy}"


class AgentNotFound(QuarterdeckError):
    """The command that starts an agent does not exist or may not be run."""

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(
            f"cannot start {command!r}: {reason}; check that it is installed and on PATH"
        )
        self.command = command
        self.reason = reason


class ModelFailed(QuarterdeckError):
    """A language model gave no answer.

    Attributes:
        reason: which of `agent.builtin.model.FAILURES` it was.
        retry_after: the seconds the provider asked us to wait, if it did.
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
    """A tool could not do what the model asked; the model is told why and may try otherwise."""


class AgentError(QuarterdeckError):
    """What an agent raises to refuse or to give up; its client is told `message` as an error."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Misused(QuarterdeckError):
    """A command line cannot be understood; the exit status is 2."""


class CommandFailed(QuarterdeckError):
    """A command could not do what it was asked; the sentence says what to do next.

    Attributes:
        status: the exit status, for those who can tell failures apart.
    """

    def __init__(self, sentence: str, *, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


class HubDeclined(QuarterdeckError):
    """The hub answered a request with a refusal."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class RequestRejected(QuarterdeckError):
    """A request is rejected; the client gets its code, message and data.

    The code decides what each surface makes of it: the HTTP API has one table of statuses.
    """

    def __init__(
        self, code: str, message: str, *, data: Any = None, retryable: bool = False
    ) -> None:
        """`code` comes after `quarterdeck/`."""
        super().__init__(message)
        self.code = f"quarterdeck/{code}"
        self.message = message
        self.data = data
        self.retryable = retryable


class RequestRefused(RequestRejected):
    """A request to the HTTP API is rejected with a status of its own choice."""

    def __init__(
        self, status: int, code: str, message: str, *, data: Any = None, retryable: bool = False
    ) -> None:
        """`code` comes after `quarterdeck/`."""
        super().__init__(code, message, data=data, retryable=retryable)
        self.status = status


class ScenarioInvalid(QuarterdeckError):
    """A scenario file for the scripted agent cannot be played."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"cannot play {source}: {reason}")
        self.source = source
        self.reason = reason

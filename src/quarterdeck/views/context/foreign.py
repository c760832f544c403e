"""Sessions that other programs run: what an adapter offers so that they can be adopted. Pure.

An adapter implements `Adapter` (seed 000). One whose program keeps its sessions in files, in a
database or behind a socket also implements `ForeignAdapter`: its sessions are read as normalized
updates, in bounded pieces, and continue after any update that was read before. The runner stores
what a reader returns as ordinary events (`runner/adoption`).

**Cursors.** Each update carries the cursor after it: a small JSON object that only the adapter
understands, such as a byte offset. The runner stores it in the event
(`extensions.quarterdeck.source.cursor`), so an update and its cursor are committed together and
nothing is read twice or skipped, whatever ends the process. All updates of one item, such as a line
of a file, carry the same cursor and are returned by one `read`: they are committed together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from quarterdeck.protocol import Normalized
from quarterdeck.views.context.contract import Adapter

Cursor = Mapping[str, Any]


class ForeignUpdate(Struct, frozen=True, kw_only=True):
    """One normalized update of a foreign session."""

    update: Normalized
    at: int
    """When it happened, in milliseconds since 1970; it becomes the time of the event."""
    cursor: Cursor
    """Where to continue after it."""


class ForeignSession(Struct, frozen=True, kw_only=True, rename="camel"):
    """A session of a foreign program, as it was found on this machine."""

    id: str
    cwd: str
    path: str = ""
    """The file it is read from; empty if it is not a file."""
    size: int = 0
    """Bytes of that file."""
    changed_at: int = 0
    """When it changed last, in milliseconds since 1970."""
    title: str | None = None
    parent_id: str | None = None
    """The session whose sub-agent it is."""
    parent_call_id: str | None = None
    """The tool call that started it."""
    is_running: bool = False
    """Whether its program has it open now."""
    status: Literal["idle", "busy", "waiting", "unknown"] = "unknown"
    waiting_for: str = ""
    """What the program waits for, in its own words."""
    pid: int | None = None


class SessionReader(Protocol):
    """Reads one foreign session from a cursor on; blocking, so it is called on a thread."""

    @property
    def is_holding(self) -> bool:
        """Whether it has read what it does not return yet: what comes before is not there yet."""

    def read(self) -> Sequence[ForeignUpdate]:
        """Return the next updates; none if there is nothing new yet. It may be called again.

        Damage is not raised: what cannot be read becomes an update that says so.

        Raises:
            OSError: if it cannot be read now; it is tried again later.
            SourceRewritten: if what was read before is not there any more.
        """

    def skip(self, until: int) -> None:
        """Leave out what happened up to a time: it was recorded in another way."""

    def close(self) -> None: ...


@runtime_checkable
class ForeignAdapter(Adapter, Protocol):
    """An adapter whose sessions can be read as normalized updates."""

    @property
    def name(self) -> str:
        """The name of the agent whose sessions these are; the same as for its ACP agent."""

    def find_sessions(self) -> Sequence[ForeignSession]:
        """Return all sessions on this machine; blocking, and cheap if nothing has changed."""

    def find_running(self) -> Sequence[ForeignSession]:
        """Return the sessions that are open now; blocking, and called about once a second."""

    def open_reader(self, session: ForeignSession, after: Cursor | None, at: int) -> SessionReader:
        """Return a reader that continues after a cursor, whose update happened at `at`."""


class HookSettings(Struct, frozen=True, kw_only=True):
    """The settings file of a program, as it is and as it would be."""

    path: str
    before: str
    """Its text; empty if there is no file."""
    installed: str
    """Its text with the hook."""
    removed: str
    """Its text without the hook; empty if nothing would be left."""
    has_hook: bool
    """Whether the hook of this runner is there, also one of an older version."""
    is_current: bool
    """Whether it is there as it would be installed now."""


@runtime_checkable
class HookedAdapter(Protocol):
    """An adapter whose program asks by a hook: a command of ours that it runs."""

    def hook_settings(self, command: str) -> HookSettings:
        """Return the program's settings with and without the hook; nothing is written.

        Raises:
            OSError: if they cannot be read.
            ValueError: if they are not as documented.
        """

    def hook_command(self, socket: str) -> str:
        """Return the command of the hook for a runner that listens on a socket."""

    def hook_session(self, hook: Mapping[str, Any]) -> ForeignSession | None:
        """Return the session of a hook's request; None if it is not one for people."""

    def permission_params(self, hook: Mapping[str, Any], call_id: str) -> dict[str, Any]:
        """Return the request as the params of `session/request_permission`."""

    def requested_call(self, hook: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the tool and the input of the request, to find its call in the session."""

    def hook_output(
        self, hook: Mapping[str, Any], outcome: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return what the hook prints for an outcome; None if it prints nothing."""


class LiveRequest(Struct, frozen=True, kw_only=True):
    """A permission request that a program asks its clients, while its own dialog is shown."""

    key: str
    """Names it to the adapter; unique as long as the adapter lives."""
    session_id: str
    call_id: str
    params: dict[str, Any]
    """The params of `session/request_permission`."""


class LiveListener(Protocol):
    """What an adapter reports about sessions that run; plain calls on the event loop."""

    def changed(self, session_id: str) -> None:
        """Take note that there is more to read in a session, or that its status is another."""

    def requested(self, request: LiveRequest) -> None:
        """Take a permission request; `LiveAdapter.answer` sends the decision."""

    def settled(self, key: str) -> None:
        """Withdraw a request: it was answered elsewhere, or its program does not wait for it."""


@runtime_checkable
class LiveAdapter(Protocol):
    """An adapter that is connected to its program while that runs: by a socket or a server.

    Its readers return what the program has sent, too. Methods that send raise `AcpError` if the
    program is not connected or refuses.
    """

    async def serve_live(self, listener: LiveListener) -> None:
        """Stay connected until cancelled; a program that is not there is looked for again."""

    def is_live(self, session_id: str) -> bool:
        """Return whether commands for a session reach its program now."""

    async def answer(self, key: str, outcome: Mapping[str, Any]) -> None:
        """Send the outcome of a permission request; one that is settled is ignored."""

    async def prompt(self, session_id: str, blocks: Sequence[Any]) -> dict[str, Any]:
        """Start a turn and wait for its end; return the payload of a `prompt-finished`.

        It waits first for the end of a turn that runs.
        """

    async def wait_idle(self, session_id: str) -> None:
        """Wait until no turn runs in a session."""

    async def steer(self, session_id: str, blocks: Sequence[Any]) -> None:
        """Add to the turn that runs."""

    async def interrupt(self, session_id: str) -> None:
        """End the turn that runs; nothing if none does."""


@runtime_checkable
class AdvisingAdapter(Protocol):
    """An adapter whose program has to be started in a certain way to be reached."""

    @property
    def advice(self) -> str:
        """How to start it, for people; a sentence."""

"""Permission requests of foreign programs: their hooks ask here, and people answer as always.

A hook is a command that the program runs while its own dialog is on the screen. It connects to
`adopt.sock` in the runner's folder and sends one line; it gets one line back when the request is
decided, and nothing else can be done here: no hook can answer a request.

    what happens                                  the request is      the hook gets
    a device or a rule decides                    answered            what to print
    the program's process or the hook ends        withdrawn           -
    the program does not wait any more: another   withdrawn           nothing to print
    status, or its call has ended in the log
    the runner ends                               superseded at the   its connection closes; it
                                                  next start          asks the next runner again

The request is about the call that the program has announced in its session. Its log is read first,
so the call is there; if not (a sub-agent has its own), the request announces one of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

import anyio
from anyio.abc import ByteStream

from quarterdeck.errors import JsonInvalid, QuarterdeckError
from quarterdeck.host import Host, PermissionRequest
from quarterdeck.jsontext import decode_json, encode_json
from quarterdeck.runner.adoption.follower import ProgramFollower
from quarterdeck.views.context import ForeignAdapter, ForeignSession, HookedAdapter

logger = logging.getLogger(__name__)

MOST_BYTES: Final = 16 << 20  # of a request: a file that is to be written is in it
RECEIVE_SECONDS: Final = 10.0
CALL_SECONDS: Final = 1.0
"""How long the announcement of a call is waited for."""
CHECK_SECONDS: Final = 0.25
_OURS: Final = "requested-"  # how ids of calls begin that only their request announces
GRACE_SECONDS: Final = 3.0
"""After which a program that has not said that it waits is believed when it says it does not."""


class FollowedPrograms(Protocol):
    """The programs that a runner follows."""

    adapters: Mapping[str, ForeignAdapter]
    followers: dict[str, ProgramFollower]


class HookRequests:
    """Serves the hooks of foreign programs."""

    def __init__(self, host: Host, adoption: FollowedPrograms) -> None:
        self._host = host
        self._adoption = adoption

    async def serve(self, path: Path) -> None:
        """Listen until cancelled. Without a socket there is nothing to answer, but all else works.

        The folder is private, and locked by this runner: what is at the path is an older one's.
        """
        try:
            listener = await anyio.create_unix_listener(path, mode=0o600)
        except OSError as error:
            logger.warning("hooks cannot be served", extra={"reason": str(error)})
            return
        try:
            async with listener:
                await listener.serve(self._answer)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.Path(path).unlink(missing_ok=True)

    async def _answer(self, stream: ByteStream) -> None:
        async with stream:
            try:
                with anyio.fail_after(RECEIVE_SECONDS):
                    name, hook = await _received(stream)
                output = await self._decide(name, hook, stream)
                await stream.send(encode_json({"output": output}) + b"\n")
            except (anyio.EndOfStream, anyio.BrokenResourceError, TimeoutError):
                return  # the hook has ended
            except (QuarterdeckError, ValueError) as error:
                logger.info("a hook was not served", extra={"reason": str(error)})
            except Exception:
                logger.exception("a hook failed")

    async def _decide(self, name: str, hook: Mapping[str, Any], stream: ByteStream) -> Any:
        """Return what the hook prints; None if it prints nothing."""
        follower, adapter = self._adoption.followers.get(name), _any(self._adoption.adapters, name)
        if follower is None or not isinstance(adapter, HookedAdapter):
            return None
        session = adapter.hook_session(hook)
        if session is None or self._host.foreign.is_ours(session.id):
            return None
        call_id = await self._call_of(follower, session, *adapter.requested_call(hook))
        params = adapter.permission_params(hook, call_id)
        request = self._host.foreign.request_permission(session.id, params)
        answer = await self._wait(request, session.id, follower, stream)
        outcome = answer.get("outcome") if request.status == "answered" else None
        if not isinstance(outcome, Mapping):
            return None
        if request.needs_log:
            await self._host.wait_stored()
        return adapter.hook_output(hook, outcome)

    async def _call_of(
        self, follower: ProgramFollower, session: ForeignSession, tool: str, given: Any
    ) -> str:
        """Return the id of the announced call with this input; a new one if there is none."""
        deadline = time.monotonic() + CALL_SECONDS
        while True:
            found = follower.found.get(session.id)
            await follower.read_now(found if found is not None and found.cwd else session)
            pending = {
                each.tool_call.get("toolCallId")
                for each in self._host.pending_permissions()
                if isinstance(each.tool_call, dict)
            }
            for call in reversed(self._host.foreign.open_calls(session.id)):
                if call.raw_input == given and call.id not in pending:
                    return call.id
            if time.monotonic() >= deadline:
                return f"{_OURS}{tool}-{uuid4()}"
            await anyio.sleep(0.05)

    async def _wait(
        self,
        request: PermissionRequest,
        session_id: str,
        follower: ProgramFollower,
        stream: ByteStream,
    ) -> Mapping[str, Any]:
        """Wait for the answer to a request, or withdraw it."""
        answer: Mapping[str, Any] = {}
        try:
            async with anyio.create_task_group() as tasks:

                async def end_with_hook() -> None:
                    try:
                        await stream.receive(1)
                    except (anyio.EndOfStream, anyio.BrokenResourceError):
                        self._host.foreign.withdraw(request.id)

                async def end_with_program() -> None:
                    await self._until_settled(request, session_id, follower)
                    self._host.foreign.withdraw(request.id)

                tasks.start_soon(end_with_hook)
                tasks.start_soon(end_with_program)
                answer = await request.answer()
                tasks.cancel_scope.cancel()
        finally:
            if request.status == "pending":
                self._host.foreign.withdraw(request.id)
        return answer

    async def _until_settled(
        self, request: PermissionRequest, session_id: str, follower: ProgramFollower
    ) -> None:
        """Wait until the program does not wait for this request any more."""
        call = request.tool_call if isinstance(request.tool_call, dict) else {}
        has_waited, began = False, time.monotonic()
        # One that the program has not announced never ends in the log: then another time of its
        # status means that it waits for something else by now.
        is_theirs = _is_theirs(call.get("toolCallId"))
        begun, waits_since = self._generation(session_id, call.get("toolCallId")), 0
        while True:
            await anyio.sleep(CHECK_SECONDS)
            running = follower.running.get(session_id)
            is_waiting = running is not None and running.status == "waiting"
            has_waited = has_waited or is_waiting or time.monotonic() > began + GRACE_SECONDS
            if has_waited and not is_waiting and running is not None:
                return
            if running is not None and is_waiting:
                waits_since = waits_since or running.changed_at
                if not is_theirs and running.changed_at != waits_since:
                    return
            if running is None and time.monotonic() > began + GRACE_SECONDS:
                return
            if is_theirs and self._generation(session_id, call.get("toolCallId")) != begun:
                return

    def _generation(self, session_id: str, call_id: Any) -> int | None:
        """Return how often the id of an open call was announced anew; None if it has ended."""
        calls = self._host.foreign.open_calls(session_id)
        return next((each.generation for each in calls if each.id == call_id), None)


def _is_theirs(call_id: Any) -> bool:
    """Return whether a call was announced by the program, and not by its request."""
    return not (isinstance(call_id, str) and call_id.startswith(_OURS))


def _any(adapters: Mapping[str, object], name: str) -> object:
    return adapters.get(name)


async def _received(stream: ByteStream) -> tuple[str, dict[str, Any]]:
    """Return the program and the request of a hook.

    Raises:
        ValueError: if it is not a request.
    """
    data = b""
    while not data.endswith(b"\n"):
        data += await stream.receive()
        if len(data) > MOST_BYTES:
            raise ValueError("a request of a hook is too large")
    try:
        request = decode_json(data)
    except JsonInvalid as error:
        raise ValueError(f"a hook sent what is not JSON: {error}") from error
    program = request.get("program") if isinstance(request, dict) else None
    hook = request.get("hook") if isinstance(request, dict) else None
    if not isinstance(program, str) or not isinstance(hook, dict):
        raise ValueError("a hook sent what is not a request")  # noqa: TRY004 - of a peer
    return program, hook

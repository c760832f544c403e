"""Signing in to agents: a part of `RunnerApi` and of `Runner`.

A sign-in is begun, followed and ended by calls; a terminal's output is read by `sign_in_output`,
which waits for more. When it has succeeded, processes of the agent that are idle are ended, since
many read their credentials only at their start, and prompts that had failed for want of it are
queued again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

import anyio
from msgspec import UNSET, Struct, structs

from quarterdeck.agents import KnownAgents
from quarterdeck.agents.known_agents import sign_in_words
from quarterdeck.errors import AgentNotFound, QuarterdeckError, RequestRejected, RpcError
from quarterdeck.host import Host
from quarterdeck.protocol import AgentSnapshotWire
from quarterdeck.runner.actor import PROGRAM, Actor, log_command, not_found
from quarterdeck.runner.confinement import AgentConfinement
from quarterdeck.runner.prompts.queue import PromptQueue
from quarterdeck.runner.prompts.store import PromptError
from quarterdeck.runner.sessions.catalogue import SessionCatalogue
from quarterdeck.runner.sessions.manager import SessionManager
from quarterdeck.runner.sign_in.methods import (
    SignInMethod,
    TerminalCommand,
    advice,
    offered_methods,
    terminal_command,
)
from quarterdeck.runner.sign_in.terminal import SignInTerminal
from quarterdeck.wire import IndependentTasks

logger = logging.getLogger(__name__)

REQUIRED: Final = "sign-in-required"
_CODE: Final = f"quarterdeck/{REQUIRED}"
_WAIT_SECONDS: Final = 20.0
_KEPT_SECONDS: Final = 300.0
"""After its end, for the last look at it."""
_MOST: Final = 8


class SignInState(Struct, frozen=True, kw_only=True, rename="camel"):
    """A sign-in that runs, or has ended."""

    id: str
    agent: str
    kind: Literal["agent", "terminal"]
    state: Literal["running", "done", "failed"]
    reason: str = ""
    """Why it failed, a sentence."""
    retried: tuple[str, ...] = ()
    """Sessions whose failed prompts were queued again."""


class SignInOutput(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a terminal has shown since a position."""

    text: str
    position: int
    sign_in: SignInState


class SignInApi(Protocol):
    """The part of `RunnerApi` that signs in to agents."""

    async def authenticate(self, agent_id: str, method_id: str, *, by: Actor = PROGRAM) -> None: ...

    async def logout(self, agent_id: str, *, by: Actor = PROGRAM) -> None: ...

    async def sign_in_methods(self, name: str, *, by: Actor = PROGRAM) -> list[SignInMethod]:
        """Return the ways to sign in to an agent, which is started if it does not run.

        Raises:
            RequestRejected: if there is no such name, or it is not installed.
            AcpError: `acpjs/agent-exited` if it cannot be started.
        """

    async def begin_sign_in(
        self,
        name: str,
        method_id: str,
        *,
        columns: int = 80,
        rows: int = 24,
        by: Actor = PROGRAM,
    ) -> SignInState:
        """Sign in; return without waiting for the end.

        Raises:
            RequestRejected: if there is no such agent or method.
        """

    async def sign_in_output(self, sign_in_id: str, after: int) -> SignInOutput:
        """Return what a terminal has shown, or wait some seconds for more.

        Raises:
            RequestRejected: if there is no such sign-in.
        """

    async def send_sign_in_input(self, sign_in_id: str, text: str, *, by: Actor = PROGRAM) -> None:
        """Type into the terminal of a sign-in."""

    async def cancel_sign_in(self, sign_in_id: str, *, by: Actor = PROGRAM) -> None:
        """End a sign-in."""


class _SignIn:
    def __init__(self, state: SignInState, terminal: SignInTerminal | None) -> None:
        self.state = state
        self.terminal = terminal
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()


class SignInCommands:
    """The part of `Runner` that implements `SignInApi`."""

    host: Host
    manager: SessionManager
    catalogue: SessionCatalogue
    prompts: PromptQueue
    confinement: AgentConfinement
    _known: KnownAgents

    def start_signing_in(self, tasks: IndependentTasks) -> None:
        self._sign_in_tasks = tasks
        self._sign_ins: dict[str, _SignIn] = {}
        self.prompts.advise = self.advised

    async def authenticate(self, agent_id: str, method_id: str, *, by: Actor = PROGRAM) -> None:
        log_command("authenticate", by)
        await self.host.authenticate(agent_id, method_id)

    async def logout(self, agent_id: str, *, by: Actor = PROGRAM) -> None:
        log_command("logout", by)
        await self.host.logout(agent_id)

    async def sign_in_methods(self, name: str, *, by: Actor = PROGRAM) -> list[SignInMethod]:
        log_command("sign_in_methods", by)
        agent = await self.manager.start_agent(name)
        return offered_methods(_offered(agent), self._known.catalogue.get(name))

    async def begin_sign_in(
        self,
        name: str,
        method_id: str,
        *,
        columns: int = 80,
        rows: int = 24,
        by: Actor = PROGRAM,
    ) -> SignInState:
        log_command("begin_sign_in", by)
        if sum(not each.ended.is_set() for each in self._sign_ins.values()) >= _MOST:
            raise RequestRejected("too-many", f"{_MOST} sign-ins are running; end one of them")
        agent = await self.manager.start_agent(name)
        offered, entry = _offered(agent), self._known.catalogue.get(name)
        methods = {each.id: each for each in offered_methods(offered, entry)}
        method = methods.get(method_id)
        if method is None:
            names = ", ".join(methods) or "it offers none"
            raise RequestRejected(
                "invalid", f"{name} has no sign-in method {method_id!r}; choose one of: {names}"
            )
        if method.kind == "environment":
            names = ", ".join(method.variables)
            message = f"set {names} where you start the hub, then: quarterdeck down, quarterdeck up"
            raise RequestRejected("invalid", message)
        settings = self._known.settings(name)
        terminal = (
            None if settings is None else terminal_command(method_id, offered, entry, settings)
        )
        kind: Literal["agent", "terminal"] = "agent" if terminal is None else "terminal"
        state = SignInState(id=uuid.uuid4().hex, agent=name, kind=kind, state="running")
        sign_in = _SignIn(state, None if terminal is None else SignInTerminal())
        self._sign_ins[state.id] = sign_in
        if terminal is None:
            work = lambda: self.host.authenticate(agent.agent_id, method_id)  # noqa: E731
        else:
            work = lambda: self._run_terminal(sign_in, terminal, (rows, columns))  # noqa: E731
        self._sign_in_tasks.start_soon(self._sign_in, sign_in, work)
        return state

    async def _run_terminal(
        self, sign_in: _SignIn, terminal: TerminalCommand, size: tuple[int, int]
    ) -> None:
        definition = self._known.definition(sign_in.state.agent)
        assert definition is not None
        assert sign_in.terminal is not None
        env = {**self._known.environment.of(definition), "TERM": "xterm-256color", **terminal.env}
        start = await anyio.to_thread.run_sync(self.confinement.start, definition)
        status = await sign_in.terminal.run(terminal.command, env, start, size)
        if status:
            raise RequestRejected("failed", f"the sign-in ended with status {status}; try it again")

    async def _sign_in(self, sign_in: _SignIn, work: Any) -> None:
        """Carry out a sign-in, and what follows it; nothing of it is logged."""
        state = sign_in.state
        try:
            with sign_in.scope:
                await work()
                retried = await self._after_sign_in(state.agent)
                state = structs.replace(state, state="done", retried=retried)
            if sign_in.scope.cancelled_caught:
                state = structs.replace(state, state="failed", reason="it was cancelled")
        except RpcError as error:
            reason = f"{state.agent} refused: {error.explanation}"
            state = structs.replace(state, state="failed", reason=reason)
        except (AgentNotFound, QuarterdeckError) as error:
            state = structs.replace(state, state="failed", reason=str(error))
        sign_in.state = state
        sign_in.ended.set()
        if sign_in.terminal is not None:
            sign_in.terminal.finish()
        await anyio.sleep(_KEPT_SECONDS)
        self._sign_ins.pop(state.id, None)

    async def sign_in_output(self, sign_in_id: str, after: int) -> SignInOutput:
        sign_in = self._find(sign_in_id)
        text, position = "", 0
        if sign_in.terminal is not None:
            text, position = await sign_in.terminal.output(after, _WAIT_SECONDS)
        if not text:
            with anyio.move_on_after(_WAIT_SECONDS):
                await sign_in.ended.wait()
        return SignInOutput(text=text, position=position, sign_in=sign_in.state)

    async def send_sign_in_input(self, sign_in_id: str, text: str, *, by: Actor = PROGRAM) -> None:
        log_command("send_sign_in_input", by)
        terminal = self._find(sign_in_id).terminal
        if terminal is not None:
            terminal.write(text)

    async def cancel_sign_in(self, sign_in_id: str, *, by: Actor = PROGRAM) -> None:
        log_command("cancel_sign_in", by)
        self._find(sign_in_id).scope.cancel()

    def _find(self, sign_in_id: str) -> _SignIn:
        found = self._sign_ins.get(sign_in_id)
        if found is None:
            raise not_found("such sign-in", "begin it again")
        return found

    # ---- what follows --------------------------------------------------------------------------

    async def _after_sign_in(self, name: str) -> tuple[str, ...]:
        """Let idle processes start again with the new credentials; retry what had failed."""
        live = {each.session_id: each for each in self.host.get_sessions()}
        for agent in self.host.get_agents():
            if self.manager.name_of(agent.agent_id) != name:
                continue
            own = [each for each in live.values() if each.agent_id == agent.agent_id]
            if not any(each.status == "prompting" for each in own):
                await self.manager.dispose_agent(agent.agent_id)
        own_sessions = [each.session_id for each in self.catalogue.all() if each.agent == name]
        return tuple([each for each in own_sessions if await self._retry(each)])

    async def _retry(self, session_id: str) -> bool:
        entries = await self.prompts.entries(session_id, 1)
        last = entries[-1] if entries else None
        if last is None or last.state != "failed" or last.error is UNSET:
            return False
        if last.error.code != _CODE:
            return False
        by = PROGRAM if last.by is UNSET else last.by
        try:
            await self.prompts.add(session_id, uuid.uuid4().hex, last.prompt, mode="queue", by=by)
        except QuarterdeckError as error:
            logger.info("a prompt was not repeated", extra={"reason": str(error)})
            return False
        return True

    # ---- advice --------------------------------------------------------------------------------

    def advised(self, session_id: str, failure: PromptError) -> PromptError:
        """Add to the error of a turn what to do about it, if it is for want of a sign-in."""
        found = self.catalogue.find(session_id)
        name = None if found is None or not isinstance(found.agent, str) else found.agent
        words = None if name is None else self._advice(name, failure.message, None)
        if words is None:
            return failure
        return PromptError(code=_CODE, message=f"{failure.message}; {words}")

    def explained(self, name: str | None, error: RpcError) -> QuarterdeckError:
        """Return the refusal of a session with what to do about it."""
        words = None if name is None else self._advice(name, error.explanation, error.code)
        if words is None or name is None:
            return error
        entry = self._known.catalogue.get(name)
        title = name if entry is None else entry.title or name
        message = f"{title} refused: {error.explanation}; {words}"
        return RequestRejected(REQUIRED, message, data={"agent": name})

    def _advice(self, name: str, message: str, code: int | None) -> str | None:
        entry = self._known.catalogue.get(name)
        try:
            definition = self._known.definition(name)
        except RequestRejected:
            definition = None
        withheld = [] if definition is None else self._known.environment.withheld(definition)
        words = f"quarterdeck login {name}" if entry is None else sign_in_words(entry)
        return advice(message, code, words, withheld)


def _offered(agent: AgentSnapshotWire) -> Sequence[Any]:
    methods: Any = agent.auth_methods
    return () if methods is UNSET else [each for each in methods if isinstance(each, dict)]

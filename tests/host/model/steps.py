"""What may happen next, to a host and to its model alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from anyio.abc import TaskGroup

from tests.host.model.puppet import Json
from tests.host.model.reference import (
    ANSWERED,
    CLOSED,
    ModelAgent,
    ModelRequest,
    ModelSession,
    Opening,
)
from tests.host.model.world import MODES, REFUSAL, Call, Follower, World, modes

Choose = Callable[[str, Sequence[Any]], Any]
"""Choose one of these for that."""

CWD = "/tmp"
NAMES = ("s1", "s2", "s3", "s4", "s5", "s6")
DEFINITIONS = ("one", "two")
STEPS = (  # the more often a name is here, the more often it is chosen
    *["answer"] * 8,
    *["prompt", "open"] * 4,
    *["create", "say", "ask"] * 3,
    *["spawn", "rename", "respond", "cancel", "set_mode", "close", "subscribe"] * 2,
    *("delete", "crash", "dispose", "restart", "restore"),
)


class Steps:
    """Each step draws what it needs, makes it happen, and updates the model."""

    def __init__(self, world: World, tasks: TaskGroup, choose: Choose) -> None:
        self._world = world
        self._tasks = tasks
        self._choose = choose
        self._words = 0

    def is_possible(self, name: str) -> bool:
        model = self._world.model
        ready = any(agent.is_ready for agent in model.agents.values())
        match name:
            case "spawn":
                return len(model.agents) < 2
            case "answer":
                return bool(self._world.calls)
            case "respond":
                return bool(model.requests)
            case "say" | "rename" | "ask" | "crash":
                return ready
            case "create" | "delete" | "open" | "dispose":
                return bool(model.agents)
            case "restart":
                return bool(model.known or model.tombstones)
            case "restore":
                return bool(model.stored)
            case _:
                return bool(model.known or model.staged or model.tombstones)

    # ---- drawing -------------------------------------------------------------------------

    def _agent(self, *, ready: bool = False) -> ModelAgent:
        agents = [each for each in self._world.model.agents.values() if each.is_ready or not ready]
        by_id = {each.id: each for each in agents}
        return by_id[self._choose("agent", tuple(by_id))]

    def _session(self) -> str:
        likely = (*self._world.model.known, *self._world.model.staged)
        return str(self._choose("session", (*NAMES, *likely * 3)))

    def _text(self) -> str:
        self._words += 1
        return f"word {self._words}"

    # ---- clients -------------------------------------------------------------------------

    async def spawn(self) -> None:
        await self._world.spawn(self._choose("definition", DEFINITIONS))

    async def create(self) -> None:
        agent, host = self._agent(), self._world.host
        refusal = self._world.model.refuse_create(agent.id)
        outcome = await self._world.try_to(lambda: host.create_session(agent.id, cwd=CWD))
        if refusal is not None:
            assert outcome == [("raised", refusal)]
            return
        assert outcome == []
        agent.creating += 1
        self._world.waiting(agent, "session/new", outcome=outcome)

    async def prompt(self) -> None:
        session_id, text = self._session(), self._text()
        refusal = self._world.model.refuse_prompt(session_id)
        outcome = await self._world.try_to(lambda: self._world.host.prompt(session_id, text))
        if refusal is not None:
            assert outcome == [("raised", refusal)]
            return
        assert outcome == []
        session = self._world.model.known[session_id]
        self._world.model.begin_turn(session)
        session.texts.append(text)
        self._wait(session, "session/prompt", outcome)

    def _wait(self, session: ModelSession, method: str, outcome: list[Any], **more: Any) -> None:
        agent = self._world.model.agents[cast(str, session.agent)]
        facts = {"session": session, "generation": session.generation, "outcome": outcome}
        self._world.waiting(agent, method, **facts, **more)

    async def cancel(self) -> None:
        session_id, model = self._session(), self._world.model
        refusal = model.refuse_cancel(session_id)
        session = model.known.get(session_id)
        before = self._cancelled(session)
        outcome = await self._world.try_to(lambda: self._world.host.cancel(session_id))
        if refusal is not None:
            assert outcome == [("raised", refusal)]
            return
        assert session is not None
        assert outcome == [("returned", None)]
        assert self._cancelled(session) == before + 1
        model.supersede(session)

    def _cancelled(self, session: ModelSession | None) -> int:
        puppet = None if session is None else self._world.puppets.get(session.agent or "")
        return 0 if puppet is None or session is None else puppet.cancelled[session.id]

    async def set_mode(self) -> None:
        session_id = self._session()
        mode = self._choose("mode", MODES)
        refusal = self._world.model.refuse_mode(session_id)
        outcome = await self._world.try_to(lambda: self._world.host.set_mode(session_id, mode))
        if refusal is not None:
            assert outcome == [("raised", refusal)]
            return
        assert outcome == []
        session = self._world.model.known[session_id]
        self._wait(session, "session/set_mode", outcome, mode=mode)

    async def close(self) -> None:
        session_id, model = self._session(), self._world.model
        refusal = model.refuse_use(session_id)
        session = model.known.get(session_id)
        was_prompting = session is not None and session.status == "prompting"
        before = self._cancelled(session)
        outcome = await self._world.try_to(lambda: self._world.host.close_session(session_id))
        if refusal is not None:
            assert outcome == [("raised", refusal)]
            return
        assert outcome == [("returned", None)]
        assert self._cancelled(session) == before + was_prompting
        self._settled(session_id)
        model.end(session_id, "closed")

    async def delete(self) -> None:
        agent, session_id, model = self._agent(), self._session(), self._world.model
        host, refusal = self._world.host, model.refuse_delete(agent.id, session_id)
        outcome = await self._world.try_to(lambda: host.delete_session(agent.id, session_id))
        if refusal is not None:
            assert outcome == [("raised", refusal)]
            return
        assert outcome == [("returned", None)]
        model.end(session_id, "deleted")
        self._world.followers = [
            each for each in self._world.followers if each.session_id != session_id
        ]

    async def open(self) -> None:
        operation: Opening = self._choose("how", ("load", "resume"))
        agent, session_id, host = self._agent(), self._session(), self._world.host
        self._world.model.restore(session_id)
        refusal = self._world.model.refuse_open(operation, agent.id, session_id)
        ask = host.load_session if operation == "load" else host.resume_session
        outcome = await self._world.try_to(lambda: ask(agent.id, session_id, cwd=CWD))
        self._settled(session_id)
        if refusal is not None:
            assert outcome == [("raised", refusal)]
            return
        assert outcome == []
        session = self._world.model.begin(operation, agent, session_id)
        self._wait(session, f"session/{operation}", outcome)

    def _settled(self, session_id: str) -> None:
        if (session := self._world.model.known.get(session_id)) is not None:
            session.is_settled = True

    async def respond(self) -> None:
        model = self._world.model
        request = model.requests[self._choose("request", range(len(model.requests)))]
        outcome = {"outcome": "selected", "optionId": self._text()}

        async def respond() -> None:
            await self._world.host.respond_permission(request.id, outcome)

        ended = await self._world.try_to(respond)
        if request.status != "pending":
            assert ended == [("raised", ANSWERED)]
            return
        assert ended == [("returned", None)]
        request.status, request.outcome = "answered", outcome

    async def subscribe(self) -> None:
        session_id, world = self._session(), self._world
        from_seq = self._choose("from", range(40))
        follower = Follower(session_id, from_seq)

        async def subscribe() -> None:
            world.host.subscribe(session_id, from_seq, follower.events.append)

        outcome = await world.try_to(subscribe)
        if session_id not in world.model.known:
            assert outcome == [("raised", CLOSED)]
            return
        self._settled(session_id)
        world.followers.append(follower)

    # ---- agents --------------------------------------------------------------------------

    async def say(self) -> None:
        agent, session_id, text = self._agent(ready=True), self._session(), self._text()
        content = {"type": "text", "text": text}
        update = {"sessionUpdate": "agent_message_chunk", "messageId": text, "content": content}
        self._world.puppets[agent.id].update(session_id, update)
        self._world.model.say(agent, session_id, text)

    async def rename(self) -> None:
        agent, session_id, title = self._agent(ready=True), self._session(), self._text()
        session = self._world.model.known.get(session_id)
        if session is None or self._world.model.refuses_request(agent.id, session_id):
            return
        update = {"sessionUpdate": "session_info_update", "title": title}
        self._world.puppets[agent.id].update(session_id, update)
        session.title = title

    async def ask(self) -> None:
        agent, session_id, model = self._agent(ready=True), self._session(), self._world.model
        puppet = self._world.puppets[agent.id]
        options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
        params = {"sessionId": session_id, "toolCall": {"toolCallId": "t"}, "options": options}
        wire_id = puppet.ask("session/request_permission", params)
        await self._world.quiet()
        if model.refuses_request(agent.id, session_id):
            (answer,) = puppet.answers[wire_id]
            assert answer["error"]["code"] == -32602
            return
        number = model.stored_before + len(model.requests) + 1
        session = model.known[session_id]
        is_of_turn = session.status == "prompting"
        model.requests.append(
            ModelRequest(f"perm-{number}", session, agent.id, puppet, wire_id, is_of_turn)
        )

    async def answer(self) -> None:
        world = self._world
        call = world.calls[self._choose("call", range(len(world.calls)))]
        if self._choose("it works", (True, False)):
            expected = await self._succeed(call)
        else:
            call.puppet.answer(call.request_id, error=REFUSAL)
            await world.quiet()
            expected = self._fail(call)
        world.calls.remove(call)
        if call.method == "session/new":
            call.agent.creating -= 1
            if not call.agent.creating:
                call.agent.early.clear()
        if call.outcome is None:
            world.recover(call.agent)
            return
        ((how, value),) = call.outcome
        assert (how, value if how != "returned" else None) == expected, call.method

    async def _succeed(self, call: Call) -> tuple[str, Any]:
        """Answer a call; return how it has to end."""
        current = self._choose("modes", (None, *MODES))
        result: Json = {} if call.method == "session/set_mode" else modes(current)
        if call.method == "session/new":
            result["sessionId"] = session_id = self._session()
            refusal = self._world.model.create(call.agent, session_id)
            if refusal is None:
                call.session = self._world.model.known[session_id]
        elif call.method == "session/prompt":
            result = {"stopReason": "end_turn"}
            refusal = None
        else:
            is_void = call.session is None or call.session.generation != call.generation
            is_opening = call.method in ("session/load", "session/resume")
            refusal = CLOSED if is_void and is_opening else None
        call.puppet.answer(call.request_id, result)
        await self._world.quiet()
        if refusal is not None:
            return ("raised", refusal)
        self._succeeded(call, current)
        return ("returned", None)

    def _succeeded(self, call: Call, current: str | None) -> None:
        session = call.session
        assert session is not None
        match call.method:
            case "session/prompt":
                self._finish(call)
                return
            case "session/set_mode":
                if session.is_live:
                    session.mode = call.mode
                return
            case "session/load":
                self._world.model.opened(session, "load", call.agent)
            case "session/resume":
                self._world.model.opened(session, "resume", call.agent)
            case _:
                pass
        if current is not None:
            session.has_modes, session.mode = True, current

    def _fail(self, call: Call) -> tuple[str, Any]:
        """Follow an answer that is an error; return how the call has to end."""
        session = call.session
        if call.method == "session/prompt":
            self._finish(call)
            return ("returned", None)
        if call.method in ("session/load", "session/resume"):
            assert session is not None
            if session.generation != call.generation:
                return ("raised", CLOSED)
            self._world.model.give_up(session)
        return ("refused", REFUSAL["code"])

    def _finish(self, call: Call) -> None:
        session = call.session
        assert session is not None
        if session.generation == call.generation:
            session.status = "active"

    async def crash(self) -> None:
        agent, world = self._agent(ready=True), self._world
        await world.puppets[agent.id].exit(1)
        await world.ended(agent)
        snapshot = world.host.get_agent(agent.id)
        assert snapshot is not None
        if snapshot.status == "ready":
            agent.is_ready = True
            in_order = [world.model.known[each.session_id] for each in world.host.get_sessions()]
            of_agent = [each for each in in_order if each.agent == agent.id]
            agent.recovery = [each for each in of_agent if each.status == "disconnected"]
            world.recover(agent)

    async def dispose(self) -> None:
        agent, world = self._agent(), self._world
        outcome = await world.try_to(lambda: world.host.dispose_agent(agent.id))
        assert outcome == [("returned", None)]
        await world.ended(agent)
        del world.model.agents[agent.id]

    # ---- the host ------------------------------------------------------------------------

    async def restart(self) -> None:
        await self._world.leave(is_killed=self._choose("killed", (True, False)))
        await self._world.enter(self._tasks)

    async def restore(self) -> None:
        expected = self._world.model.restore()
        outcome = await self._world.try_to(self._world.host.restore_sessions)
        ((how, restored),) = outcome
        assert how == "returned"
        assert sorted(each.session_id for each in restored) == sorted(expected)

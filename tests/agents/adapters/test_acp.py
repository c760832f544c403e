"""An ACP agent through the adapter of the Agent Context Protocol; each test runs a process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agents.adapters import AcpAdapter, AcpSession, context_error
from quarterdeck.errors import AcpError
from quarterdeck.host import Host, HostOptions
from quarterdeck.policy import PermissionPolicy, PolicyRules
from quarterdeck.storage import SqliteStorage
from quarterdeck.testing import scripted_agent
from quarterdeck.views.context import (
    Adapter,
    AnswerQuestionCommand,
    ApproveToolCallCommand,
    CancelCommand,
    ContextEvent,
    DenyToolCallCommand,
    ImageAttachment,
    PauseCommand,
    ResumeCommand,
    SendMessageCommand,
    Session,
    SessionDiscoveryEvent,
    SetPermissionPolicyCommand,
    StartSessionOptions,
    TerminateCommand,
)

pytestmark = pytest.mark.anyio

ASK = {
    "ask": "t1",
    "title": "bash",
    "kind": "execute",
    "input": {"command": "npm test"},
    "options": ["allow_once", "allow_always", "reject_once"],
    "allowed": [{"finish": "t1", "text": "passed"}, {"say": "Allowed."}],
    "rejected": [{"finish": "t1", "status": "failed"}, {"say": "Rejected."}],
}
ABLE = {
    "loadSession": True,
    "promptCapabilities": {"image": True},
    "sessionCapabilities": {"resume": {}, "close": {}, "list": {}},
}
Json = dict[str, Any]


class Seen:
    """Collects events; tests wait for those that they need."""

    def __init__(self) -> None:
        self.events: list[ContextEvent] = []
        self._changed = anyio.Event()

    def __call__(self, event: ContextEvent) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, is_it: Callable[[Any], bool]) -> Any:
        at = 0
        while True:
            for event in self.events[at:]:
                if is_it(event):
                    return event
            at = len(self.events)
            self._changed = anyio.Event()
            await self._changed.wait()

    async def type(self, kind: str) -> Any:
        return await self.until(lambda event: event.type == kind)

    async def idle(self) -> None:
        await self.until(lambda event: getattr(event, "to", None) == "idle")

    @property
    def messages(self) -> list[str]:
        return [event.delta for event in self.events if event.type == "message:delta"]


def definition(*steps: Json, **more: Any) -> Json:
    scenario = {"name": "scripted", "turns": [{"steps": list(steps)}], **more}
    program, *arguments = scripted_agent(scenario, pace=0)
    meta = {"displayName": "Scripted", "version": "7"}
    return {"id": "scripted", "command": program, "args": arguments, "meta": meta}


@asynccontextmanager
async def adapted(
    *steps: Json, storage: SqliteStorage | None = None, **more: Any
) -> AsyncIterator[tuple[Host, AcpAdapter]]:
    with anyio.fail_after(60):
        async with (
            Host(HostOptions(storage=storage)) as host,
            AcpAdapter(host, definition(*steps, **more)) as adapter,
        ):
            yield host, adapter


async def started(adapter: AcpAdapter, folder: Path) -> tuple[AcpSession, Seen]:
    session = await adapter.start_session(StartSessionOptions(project_path=str(folder), prompt=""))
    seen = Seen()
    session.on_event(seen)
    return session, seen


async def refused(session: AcpSession, command: Any) -> str:
    with pytest.raises(AcpError) as caught:
        await session.execute(command)
    assert caught.value.message
    return caught.value.code.rpartition("/")[2]


async def test_a_turn_is_emitted_while_it_runs(tmp_path: Path) -> None:
    async with adapted({"say": "hi"}) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        await session.execute(SendMessageCommand(message="go"))
        await seen.idle()
        types = [event.type for event in seen.events]
        assert seen.messages == ["go", "hi"]
        assert (types[0], types[-1]) == ("session:status_changed", "session:status_changed")
        history = await session.get_history()
        assert history[0].type == "session:started"
        assert history[-len(seen.events) :] == seen.events


async def test_starting_a_session_sends_its_prompt(tmp_path: Path) -> None:
    async with adapted({"say": "{prompt}"}) as (_, adapter):
        options = StartSessionOptions(project_path=str(tmp_path), prompt="hello")
        session = await adapter.start_session(options)
        seen = Seen()
        session.on_event(seen)
        for event in await session.get_history():  # the turn may have ended by now
            seen(event)
        await seen.until(lambda event: getattr(event, "from_", None) == "running")
        texts = [
            event.delta for event in await session.get_history() if event.type == "message:delta"
        ]
        assert texts == ["hello", "hello"]


async def test_the_numbers_are_the_same_after_a_restart(tmp_path: Path) -> None:
    async with adapted({"say": "hi"}, storage=SqliteStorage(tmp_path / "log.db")) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        await session.execute(SendMessageCommand(message="go"))
        await seen.idle()
        session_id, before = session.session_id, await session.get_history()
    async with adapted({"say": "hi"}, storage=SqliteStorage(tmp_path / "log.db")) as (
        host,
        adapter,
    ):
        await host.restore_sessions()
        again = await (await adapter.attach_to_session(session_id)).get_history()
        assert again[: len(before)] == before
        assert again[-1].type == "session:status_changed"


async def test_detection_and_capabilities_are_honest(tmp_path: Path) -> None:
    async with adapted({"say": "hi"}, capabilities=ABLE) as (host, adapter):
        before = adapter.get_capabilities().features
        assert (before.session_control.resume, before.multimodal) == (False, False)
        await started(adapter, tmp_path)
        features = adapter.get_capabilities().features
        assert (features.session_control.resume, features.multimodal) == (True, True)
        assert (features.session_control.pause, features.streaming.tool_args) == (False, False)
        assert await adapter.is_installed()
        assert await adapter.get_version() == "7"
        assert adapter.get_capabilities().agent.display_name == "Scripted"
        missing = AcpAdapter(host, {"id": "x", "command": str(tmp_path / "nothing")})
        assert not await missing.is_installed()
        assert (await missing.get_version(), adapter.get_data_paths().sessions) == (None, None)


def test_the_adapter_fulfils_the_contract() -> None:
    adapter: type[Adapter] = AcpAdapter
    session: type[Session] = AcpSession
    assert _members(Adapter) <= _members(adapter)
    assert _members(Session) <= _members(session)


def _members(contract: type) -> set[str]:
    return {name for name in dir(contract) if not name.startswith("_")}


async def test_sessions_are_discovered_from_the_host_and_from_the_agent(tmp_path: Path) -> None:
    listed = {
        "sessionId": "old",
        "cwd": "/w/old",
        "title": "Old",
        "updatedAt": "2025-01-01T00:00:00Z",
    }
    answer = [{"result": {"sessions": [listed]}}]
    async with adapted(capabilities=ABLE, methods={"session/list": [answer]}) as (_, adapter):
        session, _ = await started(adapter, tmp_path)
        found = {each.id: each for each in await adapter.discover_sessions()}
        assert set(found) == {"old", session.session_id}
        assert (found["old"].project_name, found["old"].session_name) == ("old", "Old")
        assert found["old"].last_activity == "2025-01-01T00:00:00Z"
        assert found[session.session_id].project_path == str(tmp_path)


async def test_a_session_that_only_the_agent_knows_is_loaded(tmp_path: Path) -> None:
    listed = {"sessionId": "old", "cwd": str(tmp_path)}
    answer = [{"result": {"sessions": [listed]}}]
    load = [{"user": "before"}, {"say": "then"}]
    more: Json = {"capabilities": ABLE, "methods": {"session/list": [answer]}, "load": load}
    async with adapted(**more) as (_, adapter):
        session = await adapter.attach_to_session("old")
        history = await session.get_history()
        assert (history[0].type, history[0].replay) == ("session:resumed", True)
        assert [each.role for each in history if each.type == "message:complete"] == [
            "user",
            "assistant",
        ]
        with pytest.raises(AcpError, match="session nowhere does not exist"):
            await adapter.attach_to_session("nowhere")


async def test_changes_of_sessions_are_reported(tmp_path: Path) -> None:
    reported: list[SessionDiscoveryEvent] = []
    async with adapted({"say": "hi"}) as (_, adapter):
        first, _ = await started(adapter, tmp_path)
        stop = adapter.watch_sessions(reported.append)
        assert reported == []
        second, seen = await started(adapter, tmp_path)
        await second.execute(SendMessageCommand(message="go"))
        await seen.idle()
        await first.execute(TerminateCommand())
        kinds = [(each.type, each.session_id) for each in reported]
        assert kinds[0] == ("session_created", second.session_id)
        assert ("session_updated", second.session_id) in kinds
        assert kinds[-1] == ("session_removed", first.session_id)
        stop()
        count = len(reported)
        await second.execute(TerminateCommand())
        assert len(reported) == count


async def test_a_call_is_approved(tmp_path: Path) -> None:
    async with adapted(ASK) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        await session.execute(SendMessageCommand(message="go"))
        asked = await seen.type("approval:requested")
        assert asked.preview.working_dir == str(tmp_path)
        wrong = ApproveToolCallCommand(request_id=asked.request_id, tool_call_id="other")
        assert await refused(session, wrong) == "config-invalid"
        right = ApproveToolCallCommand(request_id=asked.request_id, tool_call_id="t1")
        await session.execute(right)
        await seen.idle()
        resolved = await seen.type("approval:resolved")
        assert (resolved.approved, resolved.resolved_by) == (True, "user")
        assert resolved.option_kind == "allow_once"
        assert seen.messages[-1] == "Allowed."
        assert await refused(session, right) == "already-answered"


async def test_a_call_is_denied_with_a_reason(tmp_path: Path) -> None:
    async with adapted(ASK) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        await session.execute(SendMessageCommand(message="go"))
        asked = await seen.type("approval:requested")
        await session.execute(
            DenyToolCallCommand(request_id=asked.request_id, tool_call_id="t1", reason="Too risky")
        )
        await seen.idle()
        resolved = await seen.type("approval:resolved")
        assert (resolved.approved, resolved.reason) == (False, "Too risky")
        assert seen.messages[-1] == "Rejected."


@pytest.mark.parametrize(
    ("policy", "said", "approved"),
    [
        (PermissionPolicy(auto_approve=PolicyRules(commands=("npm *",))), "Allowed.", True),
        (PermissionPolicy(auto_deny=PolicyRules(commands=("npm *",))), "Rejected.", False),
    ],
)
async def test_a_policy_decides_a_permission_request(
    policy: PermissionPolicy, said: str, approved: bool, tmp_path: Path
) -> None:
    async with adapted(ASK) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        await session.execute(SetPermissionPolicyCommand(policy=policy))
        await session.execute(SendMessageCommand(message="go"))
        await seen.idle()
        resolved = await seen.type("approval:resolved")
        assert (resolved.approved, resolved.resolved_by) == (approved, "policy")
        assert seen.messages[-1] == said


async def test_a_policy_decides_pending_requests_and_outlives_the_attachment(
    tmp_path: Path,
) -> None:
    policy = PermissionPolicy(auto_approve=PolicyRules(commands=("npm test",)))
    async with adapted(ASK) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        await session.execute(SendMessageCommand(message="go"))
        await seen.type("approval:requested")
        await session.execute(SetPermissionPolicyCommand(policy=policy))
        await seen.idle()
        await session.detach()
        again = await adapter.attach_to_session(session.session_id)
        later = Seen()
        again.on_event(later)
        await again.execute(SendMessageCommand(message="go"))
        await later.idle()
        assert (await later.type("approval:resolved")).resolved_by == "policy"


@pytest.mark.parametrize("is_asked_before", [True, False])
async def test_a_request_that_is_not_answered_in_time_is_rejected(
    is_asked_before: bool, tmp_path: Path
) -> None:
    agent, day = definition(ASK), 86_400_000
    with anyio.fail_after(60):
        async with Host() as host, AcpAdapter(host, agent, approval_expiry_ms=day) as patient:
            first, seen = await started(patient, tmp_path)
            if is_asked_before:
                await first.execute(SendMessageCommand(message="go"))
                asked = await seen.type("approval:requested")
                assert asked.expires_at > asked.timestamp
            (running,) = host.get_agents()
            async with AcpAdapter(
                host, agent, agent_id=running.agent_id, approval_expiry_ms=1
            ) as hasty:
                second = await hasty.attach_to_session(first.session_id)
                if not is_asked_before:
                    await second.execute(SendMessageCommand(message="go"))
                await seen.idle()
    resolved = await seen.type("approval:resolved")
    assert (resolved.approved, resolved.resolved_by) == (False, "timeout")
    assert resolved.reason == "not answered in time"
    assert seen.messages[-1] == "Rejected."


async def test_a_call_that_no_rule_matches_stays_pending(tmp_path: Path) -> None:
    policy = PermissionPolicy(auto_approve=PolicyRules(reads=True, commands=("ls",)))
    async with adapted(ASK) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        await session.execute(SetPermissionPolicyCommand(policy=policy))
        await session.execute(SendMessageCommand(message="go"))
        waiting = await seen.until(lambda event: getattr(event, "to", "") == "waiting_for_approval")
        assert waiting
        await session.execute(CancelCommand())
        resolved = await seen.type("approval:resolved")
        assert (resolved.approved, resolved.reason) == (False, "superseded")


async def test_a_turn_is_cancelled(tmp_path: Path) -> None:
    async with adapted({"say": "wait"}, {"stall": True}) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        await session.execute(SendMessageCommand(message="go"))
        await seen.until(lambda event: getattr(event, "delta", "") == "wait")
        assert await refused(session, SendMessageCommand(message="more")) == "prompt-in-flight"
        await session.execute(CancelCommand())
        await seen.idle()
        complete = [event for event in seen.events if event.type == "message:complete"]
        assert complete[-1].stop_reason == "cancelled"


async def test_a_command_that_the_agent_cannot_carry_out_is_an_error(tmp_path: Path) -> None:
    async with adapted({"say": "hi"}) as (_, adapter):
        session, _ = await started(adapter, tmp_path)
        assert await refused(session, PauseCommand()) == "capability-unsupported"
        answer = AnswerQuestionCommand(question_id="q", answer="red")
        assert await refused(session, answer) == "capability-unsupported"
        image = ImageAttachment(url="data:image/png;base64,aGk=")
        message = SendMessageCommand(message="see", attachments=(image,))
        assert await refused(session, message) == "capability-unsupported"
        with pytest.raises(AcpError, match="has no option for its model"):
            await adapter.start_session(
                StartSessionOptions(project_path=str(tmp_path), prompt="", model="m")
            )
        with pytest.raises(AcpError, match="unknown agent option 'colour'"):
            await adapter.start_session(
                StartSessionOptions(
                    project_path=str(tmp_path), prompt="", agent_options={"colour": 1}
                )
            )


async def test_a_question_with_answers_as_options_is_answered(tmp_path: Path) -> None:
    options = [{"optionId": "o1", "name": "Red", "kind": "allow_once"}]
    asked = {"questions": [{"question": "Which?", "options": [{"label": "Red"}]}]}
    call = {"toolCallId": "q", "title": "AskUserQuestion", "rawInput": asked}
    params = {"sessionId": "{session}", "toolCall": call, "options": options}
    step = {"request": "session/request_permission", "params": params}
    async with adapted(step, {"say": "{last.outcome.optionId}"}) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        await session.execute(SendMessageCommand(message="go"))
        question = await seen.type("interaction:question")
        wrong = AnswerQuestionCommand(question_id=question.question_id, answer="blue")
        assert await refused(session, wrong) == "config-invalid"
        right = AnswerQuestionCommand(question_id=question.question_id, answer="red")
        await session.execute(right)
        await seen.idle()
        assert seen.messages[-1] == "o1"


async def test_images_and_links_are_sent_with_a_message(tmp_path: Path) -> None:
    async with adapted({"say": "ok"}, capabilities=ABLE) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        urls = ("data:image/png;base64,aGk=", "https://x.y/z.png")
        attached = tuple(ImageAttachment(url=url) for url in urls)
        await session.execute(SendMessageCommand(message="see", attachments=attached))
        await seen.idle()
        user = next(event for event in seen.events if event.type == "message:complete")
        assert [type(each).__name__ for each in user.content] == ["TextContent", "ImageContent"]
        assert user.content[0].text == "see[z.png](https://x.y/z.png)"  # type: ignore[union-attr]


async def test_a_session_that_lost_its_agent_is_resumed(tmp_path: Path) -> None:
    turns = [{"when": "die", "steps": [{"crash": 3}]}, {"steps": [{"say": "back"}]}]
    methods: Json = {"session/resume": [[{"result": {}}]]}
    async with adapted(turns=turns, capabilities=ABLE, methods=methods) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        await session.execute(SendMessageCommand(message="die"))
        error = await seen.type("session:error")
        assert error.error.code == "AGENT_EXITED"
        await session.execute(ResumeCommand(prompt="go on"))
        await seen.type("session:resumed")
        await seen.until(lambda event: getattr(event, "delta", "") == "back")


async def test_a_terminated_session_is_resumed_and_its_subscribers_continue(
    tmp_path: Path,
) -> None:
    can = {"loadSession": True, "sessionCapabilities": {"close": {}}}
    methods: Json = {"session/close": [{"result": {}}]}
    async with adapted(
        {"say": "back"}, capabilities=can, methods=methods, load=[{"say": "before"}]
    ) as (host, adapter):
        session, seen = await started(adapter, tmp_path)
        ended: list[ContextEvent] = []
        session.on_event(ended.append)()
        await session.execute(TerminateCommand())
        await seen.type("session:completed")
        assert not any(agent.status == "ready" for agent in host.get_agents())
        assert await refused(session, SendMessageCommand(message="x")) == "session-closed"
        await session.execute(ResumeCommand(prompt="go on"))  # starts the agent again
        await seen.until(lambda event: getattr(event, "delta", "") == "back")
        history = await session.get_history()
        live = [event.seq for event in seen.events]
        assert live == [event.seq for event in history][-len(live) :]
        assert ended == []


async def test_a_closed_session_of_an_agent_that_cannot_load_stays_closed(tmp_path: Path) -> None:
    can: Json = {"sessionCapabilities": {"close": {}, "resume": {}}}
    methods: Json = {"session/close": [{"result": {}}]}
    async with adapted({"say": "x"}, capabilities=can, methods=methods) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        await session.execute(TerminateCommand())
        await seen.type("session:completed")
        assert await refused(session, ResumeCommand()) == "capability-unsupported"


async def test_resuming_without_support_of_the_agent_is_an_error(tmp_path: Path) -> None:
    async with adapted({"crash": 3}) as (_, adapter):
        session, seen = await started(adapter, tmp_path)
        await session.execute(SendMessageCommand(message="die"))
        await seen.type("session:error")
        assert await refused(session, ResumeCommand()) == "capability-unsupported"


async def test_terminating_the_last_session_ends_the_agent(tmp_path: Path) -> None:
    async with adapted({"say": "x"}, {"stall": True}) as (host, adapter):
        first, seen = await started(adapter, tmp_path)
        second, _ = await started(adapter, tmp_path)
        await first.execute(SendMessageCommand(message="go"))
        await seen.until(lambda event: getattr(event, "delta", "") == "x")
        await first.execute(TerminateCommand())
        assert seen.events[-1].type == "session:completed"
        assert len(host.get_agents()) == 1
        await second.execute(TerminateCommand())
        assert host.get_agents() == []
        assert await refused(first, CancelCommand()) == "session-closed"


async def test_a_failing_listener_does_not_affect_others(tmp_path: Path) -> None:
    policy = PermissionPolicy(auto_approve=PolicyRules(commands=True))

    def fail(_event: ContextEvent) -> None:
        raise ValueError("mine")

    async with adapted(ASK) as (_, adapter):
        session = await adapter.start_session(
            StartSessionOptions(project_path=str(tmp_path), prompt="")
        )
        session.on_event(fail)
        seen = Seen()
        session.on_event(seen)
        await session.execute(SetPermissionPolicyCommand(policy=policy))
        await session.execute(SendMessageCommand(message="go"))
        await seen.idle()
        assert seen.messages[-1] == "Allowed."


async def test_a_detached_session_gets_no_events_and_the_agent_keeps_running(
    tmp_path: Path,
) -> None:
    async with adapted({"say": "hi"}) as (host, adapter):
        session, seen = await started(adapter, tmp_path)
        other = await adapter.attach_to_session(session.session_id)
        theirs = Seen()
        stop = other.on_event(theirs)
        await session.detach()
        await session.detach()
        await other.execute(SendMessageCommand(message="go"))
        await theirs.idle()
        assert seen.events == []
        stop()
        count = len(theirs.events)
        await other.execute(SendMessageCommand(message="go"))
        await host.close_session(session.session_id)
        assert len(theirs.events) == count


async def test_sessions_of_other_agents_are_not_attached_to(tmp_path: Path) -> None:
    async with adapted({"say": "hi"}) as (host, adapter):
        session, _ = await started(adapter, tmp_path)
        other = {**definition({"say": "x"}), "id": "other"}
        async with AcpAdapter(host, other) as stranger:
            with pytest.raises(AcpError, match="belongs to another agent"):
                await stranger.attach_to_session(session.session_id)


async def test_an_adapter_that_was_not_entered_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    async with Host() as host:
        adapter = AcpAdapter(host, definition({"say": "x"}))
        options = StartSessionOptions(project_path=str(tmp_path), prompt="")
        with pytest.raises(AcpError, match="async with AcpAdapter"):
            await adapter.start_session(options)


async def test_a_model_is_chosen_where_the_agent_offers_that(tmp_path: Path) -> None:
    option = {"id": "m", "name": "Model", "category": "model", "type": "select"}
    before = {**option, "currentValue": "a", "options": [{"value": "a", "name": "A"}]}
    after = {**before, "currentValue": "b"}
    methods = {"session/set_config_option": [[{"result": {"configOptions": [after]}}]]}
    more: Json = {"sessions": {"configOptions": [before]}, "methods": methods}
    async with adapted({"say": "x"}, **more) as (_, adapter):
        options = StartSessionOptions(project_path=str(tmp_path), prompt="", model="b")
        session = await adapter.start_session(options)
        models = [
            event.context.model.id
            for event in await session.get_history()
            if event.type == "environment:info"
        ]
        assert models == ["a", "b"]


def test_errors_are_converted_to_those_of_the_protocol() -> None:
    closed = context_error(AcpError("acpjs/session-closed", "gone"))
    assert (closed.code, closed.message, closed.recoverable) == ("SESSION_CLOSED", "gone", False)
    facts = {"code": -32000, "message": "x"}
    agents = context_error(AcpError("acpjs/agent-error", "refused", data=facts))
    assert (agents.code, agents.agent_code, agents.recoverable) == ("AGENT_ERROR", "-32000", True)

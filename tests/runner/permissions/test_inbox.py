"""The inbox: who decides, what they saw, and that exactly one answer counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.agents import AgentSettings
from quarterdeck.hub import Hub
from quarterdeck.policy import Policy, Rule
from quarterdeck.protocol import ELICITATION_UPDATED, decode_event
from quarterdeck.runner.permissions.decision_recorder import SessionDecisions
from tests.hub.api.kit import ASK, Client, Json, client_of, options, running, scripted
from tests.hub.runners import runner_of
from tests.storage.support import edited

pytestmark = pytest.mark.anyio

LIES: list[Json] = [
    {"optionId": "a", "name": "Deny", "kind": "allow_always"},
    {"optionId": "b", "name": "Harmless\u202e\n" + "x" * 500, "kind": "made_up"},
    {"optionId": "c", "name": "Allow", "kind": "reject_once"},
]


def asking(**more: Any) -> AgentSettings:
    return scripted({**ASK, **more})


@asynccontextmanager
async def hub_with_request(
    tmp_path: Path, agent: AgentSettings, policy: Policy | None = None
) -> AsyncIterator[tuple[Hub, Client, str]]:
    """Run a hub whose agent was prompted with the key "k"."""
    given = options(tmp_path / "home", policy, mine=agent)
    async with running(given) as (hub, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k")
        yield hub, client, session


async def resolved(client: Client, session: str) -> list[Json]:
    events = await client.events(session)
    return [event for event in events if event["type"] == "permission-request-resolved"]


async def test_a_request_is_shown_with_what_it_would_do_and_answered_once(tmp_path: Path) -> None:
    async with hub_with_request(tmp_path, asking()) as (_, client, session):
        (request,) = await client.pending_permissions()
        assert request["sessionId"] == session
        assert request["agent"] == "mine"
        assert request["cwd"] == str(tmp_path)
        assert request["title"] == "go"  # its first prompt, as in the list of sessions
        assert request["toolCall"]["title"] == "Edit the file"
        assert request["call"]["paths"] == [f"{tmp_path}/a.py"]
        assert request["call"]["writes"] is True
        assert request["call"]["risk"] == "medium"
        assert request["call"]["riskReason"].startswith("Changes ")
        assert {"optionId": "allow_once", "kind": "allow_once", "label": "Allow once"} in request[
            "options"
        ]
        answer = {"optionId": "allow_once", "digest": request["digest"], "key": "a1"}
        path = f"/api/permissions/{request['requestId']}/answer"
        decision = await client.post(path, answer)
        assert decision["state"] == "answered"
        assert decision["by"] == {
            "kind": "device",
            "deviceId": "owner",
            "deviceName": "this computer",
        }
        assert await client.post(path, answer) == decision  # a flaky phone asks again
        other = await client.post(path, {**answer, "key": "a2"}, status=409)
        assert other["error"]["code"] == "quarterdeck/already-answered"
        assert other["error"]["data"]["outcome"] == {
            "outcome": "selected",
            "optionId": "allow_once",
        }
        assert (await client.ended(session, "k"))["state"] == "done"
        (event,) = await resolved(client, session)
        decided = event["extensions"]["quarterdeck"]["decidedBy"]
        assert decided["deviceId"] == "owner"
        assert decided["digest"] == request["digest"]
        assert (await client.get("/api/permissions"))["permissions"] == []
        (line,) = (await client.get(f"/api/decisions?session={session}"))["decisions"]
        assert line == decision


ALWAYS_ONLY: list[Json] = [{"optionId": "a", "name": "Yes", "kind": "allow_always"}]
TWINS: list[Json] = [{"optionId": "a", "name": name, "kind": "allow_once"} for name in "ab"]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"kind": "execute", "input": {"command": "ls $HOME"}}, "not fully understood"),
        ({"kind": "execute", "input": {"command": "ls && rm x"}}, "Not allowed in it: rm x."),
        ({"kind": "execute", "input": {"command": "ls", "odd": 1}}, "in the input: odd."),
        ({"kind": "execute", "input": None}, "title describes"),
        ({}, "No rule matches."),
        ({"input": {"path": "{cwd}/b"}, "options": ALWAYS_ONLY}, "no option that allows it once"),
        ({"input": {"path": "{cwd}/b"}, "options": TWINS}, "have the same id"),
    ],
)
async def test_a_request_names_why_no_rule_decided_it(
    tmp_path: Path, step: Json, words: str
) -> None:
    rules = (Rule(decision="allow", name="some", commands=("ls*",), writes=("b",)),)
    async with hub_with_request(tmp_path, asking(**step), Policy(rule=rules)) as (
        _,
        client,
        session,
    ):
        (request,) = await client.pending_permissions()
        assert words in request["askedBecause"]
        (event,) = [
            event
            for event in await client.events(session)
            if event["type"] == "permission-request-created"
        ]
        derived = event["extensions"]["quarterdeck"]["request"]
        assert derived["askedBecause"] == request["askedBecause"]


async def test_the_reason_of_a_rejection_is_stored_and_sent_to_the_agent(tmp_path: Path) -> None:
    async with hub_with_request(tmp_path, asking()) as (_, client, session):
        (request,) = await client.pending_permissions()
        path = f"/api/permissions/{request['requestId']}/answer"
        no = {"optionId": "reject_once", "digest": request["digest"], "key": "a1"}
        refused = await client.post(path, {**no, "reason": "x" * 2_001}, status=400)
        assert "2000" in refused["error"]["message"]
        why = "not the file \u202e I meant\n"
        decision = await client.post(path, {**no, "reason": why})
        assert decision["by"]["reason"] == why.strip()
        (line,) = (await client.get(f"/api/decisions?session={session}"))["decisions"]
        assert line == decision
        (event,) = await resolved(client, session)
        assert event["extensions"]["quarterdeck"]["decidedBy"]["reason"] == why.strip()
        sent = event["payload"]["outcome"]["_meta"]["quarterdeck"]
        assert sent == {"resolvedBy": "user", "reason": why.strip()}


async def test_an_answer_to_something_else_than_was_shown_is_refused(tmp_path: Path) -> None:
    async with hub_with_request(tmp_path, asking()) as (_, client, session):
        (request,) = await client.pending_permissions()
        path = f"/api/permissions/{request['requestId']}/answer"
        stale = {"optionId": "allow_once", "digest": "0" * 64}
        refused = await client.post(path, stale, status=409)
        assert refused["error"]["code"] == "quarterdeck/stale"
        unknown = {"optionId": "allow_twice", "digest": request["digest"]}
        refused = await client.post(path, unknown, status=400)
        assert "allow_once" in refused["error"]["message"]
        both = {"optionId": "allow_once", "cancelled": True, "digest": request["digest"]}
        await client.post(path, both, status=400)
        await client.post("/api/permissions/perm-999/answer", stale, status=404)
        await client.post(f"/api/sessions/{session}/cancel")
        assert (await client.ended(session, "k"))["state"] == "cancelled"
        late = {"optionId": "allow_once", "digest": request["digest"]}
        refused = await client.post(path, late, status=410)
        assert refused["error"]["code"] == "quarterdeck/gone"
        (line,) = (await client.get("/api/decisions"))["decisions"]
        assert (line["state"], line["by"]["kind"]) == ("superseded", "withdrawn")


async def test_buttons_are_named_by_what_they_do_and_not_by_the_agent(tmp_path: Path) -> None:
    async with hub_with_request(tmp_path, asking(options=LIES)) as (_, client, _):
        (request,) = await client.pending_permissions()
        always, other, reject = (option["label"] for option in request["options"])
        assert always == "Allow always"
        assert reject == "Reject"
        assert other.startswith("Other choice (the agent calls it Harmless\\u{202e}\\u{a}x")
        assert len(other) < 150
        assert "\u202e" not in other


@pytest.mark.slow
async def test_an_option_of_a_kind_that_is_no_text_can_be_chosen(tmp_path: Path) -> None:
    half = [{"optionId": "x", "name": "X", "kind": "\ud800"}]
    async with hub_with_request(tmp_path, asking(options=half)) as (_, client, _):
        (request,) = await client.pending_permissions()
        chosen = {"optionId": "x", "digest": request["digest"]}
        await client.post(f"/api/permissions/{request['requestId']}/answer", chosen)


@pytest.mark.slow
async def test_two_options_with_one_id_are_shown_but_no_answer_is_taken(tmp_path: Path) -> None:
    twins = [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "yes", "name": "No", "kind": "reject_once"},
    ]
    async with hub_with_request(tmp_path, asking(options=twins)) as (_, client, session):
        (request,) = await client.pending_permissions()
        assert request["isAmbiguous"] is True
        path = f"/api/permissions/{request['requestId']}/answer"
        chosen = {"optionId": "yes", "digest": request["digest"]}
        refused = await client.post(path, chosen, status=409)
        assert refused["error"]["code"] == "quarterdeck/ambiguous"
        await client.post(path, {"cancelled": True, "digest": request["digest"]})
        assert (await client.ended(session, "k"))["state"] == "cancelled"


@pytest.mark.slow
async def test_a_rule_decides_at_once_and_the_audit_names_it(tmp_path: Path) -> None:
    rules = (
        Rule(decision="allow", name="edits here", writes=("**",)),
        Rule(decision="deny", name="no secrets", writes=("**/.env",)),
    )
    async with hub_with_request(tmp_path, asking(), Policy(rule=rules)) as (_, client, session):
        assert (await client.ended(session, "k"))["state"] == "done"
        (event,) = await resolved(client, session)
        assert event["payload"]["outcome"]["optionId"] == "allow_once"
        decided = event["extensions"]["quarterdeck"]["decidedBy"]
        assert (decided["kind"], decided["rule"]) == ("policy", "edits here")
        (line,) = (await client.get("/api/decisions"))["decisions"]
        assert line["by"] == {"kind": "policy", "rule": "edits here"}


@pytest.mark.slow
async def test_a_denying_rule_wins(tmp_path: Path) -> None:
    rules = (
        Rule(decision="allow", writes=True),
        Rule(decision="deny", writes=("**/.env",)),
    )
    agent = asking(input={"path": "{cwd}/.env"})
    async with hub_with_request(tmp_path, agent, Policy(rule=rules)) as (_, client, session):
        assert (await client.ended(session, "k"))["state"] == "done"
        (event,) = await resolved(client, session)
        assert event["payload"]["outcome"]["optionId"] == "reject_once"
        assert event["extensions"]["quarterdeck"]["decidedBy"]["rule"] == "rule 2"


@pytest.mark.slow
async def test_a_rule_for_another_agent_or_project_does_not_decide(tmp_path: Path) -> None:
    rules = (
        Rule(decision="allow", agent="other", writes=True),
        Rule(decision="allow", project="/somewhere/else", writes=True),
    )
    async with hub_with_request(tmp_path, asking(), Policy(rule=rules)) as (_, client, _):
        (request,) = await client.pending_permissions()
        assert request["call"]["writes"] is True


@pytest.mark.slow
async def test_a_policy_that_changes_decides_what_waits(tmp_path: Path) -> None:
    async with hub_with_request(tmp_path, asking()) as (hub, client, session):
        await client.pending_permissions()
        hub.runner.set_policy(Policy(rule=(Rule(decision="deny", writes=True),)))
        assert (await client.ended(session, "k"))["state"] == "done"
        (event,) = await resolved(client, session)
        assert event["payload"]["outcome"]["optionId"] == "reject_once"


async def test_what_rules_allow_too_late_is_shown_and_rules_that_change_decide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.host.requests.permissions.HOOK_SECONDS", -1.0)
    allowing = Policy(rule=(Rule(decision="allow", writes=True),))
    async with hub_with_request(tmp_path, asking(), allowing) as (hub, client, session):
        (request,) = await client.pending_permissions()
        shown = await client.get(f"/api/permissions/{request['requestId']}")
        assert shown["digest"] == request["digest"]
        hub.runner.set_policy(Policy(rule=(Rule(decision="deny", writes=True),)))
        assert (await client.ended(session, "k"))["state"] == "done"
        (event,) = await resolved(client, session)
        assert event["payload"]["outcome"]["optionId"] == "reject_once"


async def test_a_request_on_which_the_rules_fail_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_options: Any) -> None:
        raise RecursionError

    monkeypatch.setattr("quarterdeck.runner.permissions.inbox.decide", fail)
    async with hub_with_request(tmp_path, asking()) as (hub, client, session):
        (request,) = await client.pending_permissions()
        hub.runner.set_policy(Policy())
        answer = {"optionId": "allow_once", "digest": request["digest"]}
        await client.post(f"/api/permissions/{request['requestId']}/answer", answer)
        assert (await client.ended(session, "k"))["state"] == "done"


@pytest.mark.slow
async def test_an_unanswered_request_is_rejected_when_it_expires(tmp_path: Path) -> None:
    policy = Policy(expiry_seconds=0.2)
    async with hub_with_request(tmp_path, asking(), policy) as (_, client, session):
        assert (await client.ended(session, "k"))["state"] == "done"
        (event,) = await resolved(client, session)
        assert event["payload"]["outcome"]["optionId"] == "reject_once"
        assert event["extensions"]["quarterdeck"]["decidedBy"]["kind"] == "expiry"


HARMLESS: Json = {
    "update": {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "title": "git status",
        "kind": "execute",
        "status": "in_progress",
        "rawInput": {"command": "git status"},
    }
}
COMPLETED: Json = {
    "update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}
}
HARMFUL: Json = {
    "update": {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "title": "rm -rf dist",
        "kind": "execute",
    }
}
ASKED: Json = {**ASK, "ask": "c", "title": "rm -rf dist", "kind": "execute", "input": {}}


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param([[HARMLESS, COMPLETED, HARMFUL, ASKED]], id="announced in the same turn"),
        pytest.param([[HARMLESS, COMPLETED, ASKED]], id="not announced"),
        pytest.param([[HARMLESS, COMPLETED], [HARMFUL, ASKED]], id="announced in the next turn"),
        pytest.param([[HARMLESS], [HARMFUL, ASKED]], id="left open by the turn before"),
        pytest.param([[HARMLESS], [ASKED]], id="left open and not announced"),
    ],
)
async def test_a_call_id_that_is_used_again_inherits_no_allowed_command(
    tmp_path: Path, turns: list[list[Json]]
) -> None:
    rules = (Rule(decision="allow", commands=("git status*",)),)
    agent = scripted(turns=[{"steps": steps} for steps in turns])
    given = options(tmp_path / "home", Policy(rule=rules), mine=agent)
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        for number in range(len(turns)):
            if number:
                await client.ended(session, f"k{number - 1}")
            await client.prompt(session, f"k{number}")
        (request,) = await client.pending_permissions()
        assert request["call"]["command"] is None
        assert (request["call"]["agentSays"], request["call"]["source"]) == ("rm -rf dist", "title")
        assert await resolved(client, session) == []
        events = await client.events(session)
        shown = [each["payload"] for each in events if each["type"] == "tool-call"][-1]
        assert (shown["title"], shown.get("rawInput")) == ("rm -rf dist", None)


@pytest.mark.slow
async def test_the_input_of_an_open_call_counts_when_its_request_has_none(tmp_path: Path) -> None:
    rules = (Rule(decision="allow", commands=("git status*",)),)
    agent = scripted(HARMLESS, {**ASKED, "title": "Look around"})
    async with hub_with_request(tmp_path, agent, Policy(rule=rules)) as (_, client, session):
        assert (await client.ended(session, "k"))["state"] == "done"
        (event,) = await resolved(client, session)
        assert event["payload"]["outcome"]["optionId"] == "allow_once"


async def test_a_call_that_changes_after_it_was_allowed_is_reported(tmp_path: Path) -> None:
    changed = {"progress": "edit-1", "input": {"path": "/etc/passwd"}}
    agent = asking(allowed=[changed, changed, {"finish": "edit-1"}])
    async with hub_with_request(tmp_path, agent) as (hub, client, session):
        told: list[Any] = []
        runner_of(hub).host.subscribe(None, 0, told.append)
        (request,) = await client.pending_permissions()
        answer = {"optionId": "allow_once", "digest": request["digest"]}
        await client.post(f"/api/permissions/{request['requestId']}/answer", answer)
        await client.ended(session, "k")
        mismatches = [
            event.payload
            for event in told
            if event.type == "diagnostic" and event.payload["code"] == "approval-mismatch"
        ]
        assert [each["data"]["different"] for each in mismatches] == [["rawInput"]]
        assert mismatches[0]["data"]["requestId"] == request["requestId"]


@pytest.mark.slow
async def test_a_mismatch_is_in_the_log_the_transcript_and_the_audit_after_a_restart_too(
    tmp_path: Path,
) -> None:
    changed = {"progress": "edit-1", "input": {"path": "/etc/passwd"}}
    given = options(tmp_path / "home", mine=asking(allowed=[changed, {"finish": "edit-1"}]))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k")
        (request,) = await client.pending_permissions()
        answer = {"optionId": "allow_once", "digest": request["digest"]}
        await client.post(f"/api/permissions/{request['requestId']}/answer", answer)
        await client.ended(session, "k")
        events = await client.events(session)
        (event,) = [each for each in events if each["type"] == "approval-mismatch"]
        assert event["payload"]["code"] == "approval-mismatch"
        assert event["payload"]["requestId"] == request["requestId"]
        (difference,) = event["payload"]["differences"]
        assert (difference["field"], difference["done"]) == ("rawInput", ["/etc/passwd"])
        assert difference["shown"] == [f"{tmp_path}/a.py"]
        entries = (await client.get(f"/api/sessions/{session}/transcript"))["entries"]
        (entry,) = [each for each in entries if each["type"] == "mismatch"]
        assert entry["differences"] == [difference]
        (line,) = (await client.get("/api/decisions"))["decisions"]
        assert line["mismatch"] == [difference]
    async with running(given) as (_, client):
        (line,) = (await client.get("/api/decisions"))["decisions"]
        assert line["mismatch"] == [difference]


async def test_odd_values_of_an_agent_break_neither_the_turn_nor_the_transcript(
    tmp_path: Path,
) -> None:
    odd = {"sessionUpdate": "tool_call_update", "toolCallId": "edit-1", "status": {"no": "text"}}
    lists = {"sessionUpdate": "agent_message_chunk", "content": [1]}
    agent = asking(allowed=[{"update": odd}, {"update": lists}, {"say": "done"}])
    async with hub_with_request(tmp_path, agent) as (_, client, session):
        (request,) = await client.pending_permissions()
        answer = {"optionId": "allow_once", "digest": request["digest"]}
        await client.post(f"/api/permissions/{request['requestId']}/answer", answer)
        assert (await client.ended(session, "k"))["state"] == "done"
        assert "agent-message-chunk" in [each["type"] for each in await client.events(session)]
        await client.get(f"/api/sessions/{session}/transcript")


@pytest.mark.slow
async def test_a_call_that_stays_as_it_was_allowed_is_not_reported(tmp_path: Path) -> None:
    same = {"progress": "edit-1", "input": {"path": "{cwd}/a.py"}}
    async with hub_with_request(tmp_path, asking(allowed=[same, {"finish": "edit-1"}])) as (
        hub,
        client,
        key,
    ):
        told: list[Any] = []
        runner_of(hub).host.subscribe(None, 0, told.append)
        (request,) = await client.pending_permissions()
        answer = {"optionId": "allow_once", "digest": request["digest"]}
        await client.post(f"/api/permissions/{request['requestId']}/answer", answer)
        await client.ended(key, "k")
        codes = [event.payload.get("code") for event in told if event.type == "diagnostic"]
        assert "approval-mismatch" not in codes


@pytest.mark.slow
async def test_of_many_devices_that_answer_at_once_exactly_one_counts(tmp_path: Path) -> None:
    steps = [{**ASK, "ask": f"edit-{number}", "rejected": []} for number in range(3)]
    given = options(tmp_path / "home", mine=scripted(*steps))
    async with running(given) as (_, owner):
        session = await owner.session("mine", tmp_path)
        await owner.prompt(session, "k")
        answered: list[str] = []
        async with _devices(owner, tmp_path / "home", 20) as devices:
            for _ in steps:
                (request,) = await owner.pending_permissions()
                winners = await _all_answer(devices, request)
                assert len(winners) == 1
                answered.append(winners[0])
        await owner.ended(session, "k")
        events = await resolved(owner, session)
        sent = [event["payload"]["outcome"]["optionId"] for event in events]
        assert sent == answered  # one answer each, and the one that its device was told of
        lines = (await owner.get("/api/decisions"))["decisions"]
        assert [line["outcome"]["optionId"] for line in reversed(lines)] == answered


@asynccontextmanager
async def _devices(owner: Client, home: Path, count: int) -> AsyncIterator[list[Client]]:
    """Pair so many devices."""
    url = str(owner.http.base_url)
    async with AsyncExitStack() as stack:
        clients = []
        for _ in range(count):
            codes = await owner.post("/api/pairings", {"scope": "approve"}, status=201)
            token = (await owner.post("/api/pair", {"code": codes["code"]}))["token"]
            clients.append(await stack.enter_async_context(client_of(home, url, token)))
        yield clients


async def _all_answer(devices: list[Client], request: Json) -> list[str]:
    """Have every device answer several times; return the options of those that won."""
    won: list[str] = []
    statuses: list[int] = []

    async def answer(device: Client, option: str) -> None:
        body = {"optionId": option, "digest": request["digest"]}
        path = f"/api/permissions/{request['requestId']}/answer"
        reply = await device.http.post(path, json=body)
        statuses.append(reply.status_code)
        if reply.status_code == 200:
            won.append(option)

    async with anyio.create_task_group() as tasks:
        for number, device in enumerate(devices * 5):
            tasks.start_soon(answer, device, ("allow_once", "reject_once")[number % 2])
    assert set(statuses) == {200, 409}
    return won


async def test_an_update_of_an_agent_is_no_elicitation_after_a_restart(tmp_path: Path) -> None:
    forged = {"status": "pending", "requestId": {"no": "text"}}
    update = {"sessionUpdate": ELICITATION_UPDATED, **forged}
    given = options(tmp_path / "home", mine=scripted({**ASK, "allowed": []}, {"update": update}))
    async with running(given) as (_, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k")
        (request,) = await client.pending_permissions()
        answer = {"optionId": "allow_once", "digest": request["digest"]}
        await client.post(f"/api/permissions/{request['requestId']}/answer", answer)
        await client.ended(session, "k")
    with edited(tmp_path / "home" / "runner.db") as index:  # it is made again of the log
        index.execute("DELETE FROM decisions")
        index.execute("DELETE FROM decision_progress")
    async with running(given) as (_, client):
        types = [event["type"] for event in await client.events(session)]
        assert "unrecognized-update" in types
        (line,) = (await client.get("/api/decisions"))["decisions"]
        assert line["request"]["toolCallId"] == "edit-1"
        assert (line["state"], line["optionKind"]) == ("answered", "allow_once")


async def test_an_update_of_an_agent_does_not_replace_a_request_in_the_audit() -> None:
    forged = {"status": "pending", "requestId": "perm-1", "request": {"message": "harmless"}}
    yes = {"outcome": "selected", "optionId": "yes"}
    events: list[tuple[str, Json]] = [
        (
            "permission-request-created",
            {
                "requestId": "perm-1",
                "toolCall": {"toolCallId": "c"},
                "options": [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}],
            },
        ),
        ("unrecognized-update", {"sessionUpdate": ELICITATION_UPDATED, **forged}),
        (
            "permission-request-resolved",
            {"requestId": "perm-1", "status": "answered", "outcome": yes},
        ),
    ]
    found = SessionDecisions("s", "mine", lambda: 1)
    for seq, (kind, payload) in enumerate(events, 1):
        event = {"sessionId": "s", "seq": seq, "ts": 0, "type": kind, "payload": payload}
        found.take(decode_event(event))
    (entry,) = found.entries.values()
    assert entry.decision.request == {"toolCallId": "c"}
    assert entry.decision.option_kind == "allow_once"


@pytest.mark.slow
async def test_elicitations_are_listed_answered_once_and_stored_without_the_answer(
    tmp_path: Path,
) -> None:
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    question = {"mode": "form", "message": "Your name?", "requestedSchema": form}
    step = {"request": "elicitation/create", "params": {"sessionId": "{session}", **question}}
    async with hub_with_request(tmp_path, scripted(step)) as (_, client, session):
        answer = await client.until("/api/elicitations", lambda answer: answer["elicitations"])
        (waiting,) = answer["elicitations"]
        assert waiting["request"]["message"] == "Your name?"
        path = f"/api/elicitations/{waiting['requestId']}/answer"
        reply = {"action": "accept", "content": {"name": "confidential"}}
        assert (await client.post(path, reply))["outcome"] == {"action": "accept"}
        refused = await client.post(path, reply, status=409)
        assert refused["error"]["code"] == "quarterdeck/already-answered"
        assert (await client.ended(session, "k"))["state"] == "done"
        told = await client.http.get("/api/decisions")
        assert "confidential" not in told.text


@pytest.mark.slow
async def test_a_number_that_comes_again_because_the_log_was_moved_away_is_a_new_request(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    async with hub_with_request(tmp_path, asking()) as (_, client, session):
        (first,) = await client.pending_permissions()
        body = {"optionId": "reject_once", "digest": first["digest"]}
        await client.post(f"/api/permissions/{first['requestId']}/answer", body)
        await client.ended(session, "k")
    for path in home.glob("log.db*"):
        path.unlink()
    with edited(home / "runner.db") as database:
        database.execute("UPDATE decisions SET requested_at = '2020-01-01T00:00:00Z'")
        database.execute("DELETE FROM prompts")
    async with hub_with_request(tmp_path, asking()) as (_, client, session):
        (second,) = await client.pending_permissions()
        assert second["requestId"] == first["requestId"]
        body = {"optionId": "allow_once", "digest": second["digest"]}
        await client.post(f"/api/permissions/{second['requestId']}/answer", body)
        await client.ended(session, "k")
        newest, oldest = (await client.get("/api/decisions"))["decisions"]
        assert newest["outcome"]["optionId"] == "allow_once"
        assert oldest["outcome"]["optionId"] == "reject_once"

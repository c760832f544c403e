"""A host with rules decides before a request can be seen, whatever subscribes to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from quarterdeck.errors import AcpError
from quarterdeck.host import Host, HostOptions, decide_by_rules
from quarterdeck.policy import Policy, Rule
from quarterdeck.protocol import Event
from quarterdeck.testing import scripted_agent

pytestmark = pytest.mark.anyio

ROUNDS = 20
ALLOW = Policy(rule=(Rule(decision="allow", name="always", commands=("npm test",)),))
DENY = Policy(rule=(Rule(decision="deny", name="never", commands=("npm *",)),))
STEP: dict[str, Any] = {
    "title": "npm test",
    "kind": "execute",
    "input": {"command": "npm test"},
    "allowed": [{"say": "Allowed."}],
    "rejected": [{"say": "Rejected."}],
}


def agent() -> dict[str, Any]:
    steps = [{"ask": f"call-{number}", **STEP} for number in range(ROUNDS)]
    command = scripted_agent({"name": "asks", "turns": [{"steps": steps}]}, pace=0.0)
    return {"id": "asks", "command": command[0], "args": list(command[1:])}


async def answers(host: Host, tmp_path: Path, policy: Policy | None = None) -> list[str]:
    """Return the options that were chosen, while a subscriber allows everything that it sees."""
    pending: list[str] = []

    def allow(event: Event) -> None:
        if event.type != "permission-updated" or event.payload["status"] != "pending":
            return
        pending.append(event.payload["requestId"])
        outcome = {"outcome": "selected", "optionId": "allow_once"}
        _ = host.respond_permission(event.payload["requestId"], outcome)

    host.subscribe(None, 0, allow)
    running = await host.spawn_agent(agent())
    session = await host.create_session(running.agent_id, cwd=str(tmp_path))
    if policy is not None:
        host.set_session_policy(session.session_id, policy)
    chosen: list[str] = []

    def collect(event: Event) -> None:
        if event.type == "permission-request-resolved":
            chosen.append(event.payload["outcome"].get("optionId", "cancelled"))

    host.subscribe(session.session_id, 0, collect)
    with anyio.fail_after(30):
        await host.prompt(session.session_id, "go")
    return [*chosen, *(f"pending {each}" for each in pending)]


async def test_no_subscriber_sees_or_answers_what_a_rule_decides(tmp_path: Path) -> None:
    async with Host(HostOptions(on_permission=decide_by_rules(DENY))) as host:
        assert await answers(host, tmp_path) == ["reject_once"] * ROUNDS
    async with Host(HostOptions(on_permission=decide_by_rules(ALLOW))) as host:
        assert await answers(host, tmp_path) == ["allow_once"] * ROUNDS


async def test_the_policy_of_a_session_decides_before_a_subscriber_can(tmp_path: Path) -> None:
    async with Host() as host:
        assert await answers(host, tmp_path, DENY) == ["reject_once"] * ROUNDS


@pytest.mark.parametrize(
    ("owner", "session", "expected"),
    [
        (DENY, ALLOW, "reject_once"),
        (ALLOW, DENY, "reject_once"),
        (ALLOW, ALLOW, "allow_once"),
    ],
)
async def test_with_rules_of_the_host_the_policy_of_a_session_only_narrows(
    tmp_path: Path, owner: Policy, session: Policy, expected: str
) -> None:
    async with Host(HostOptions(on_permission=decide_by_rules(owner))) as host:
        assert await answers(host, tmp_path, session) == [expected] * ROUNDS


async def test_what_the_host_leaves_to_a_person_is_not_allowed_by_a_session(
    tmp_path: Path,
) -> None:
    async with Host(HostOptions(on_permission=decide_by_rules(Policy()))) as host:
        found = await answers(host, tmp_path, ALLOW)
        assert len([each for each in found if each.startswith("pending")]) == ROUNDS


async def test_a_session_that_does_not_exist_has_no_policy() -> None:
    async with Host() as host:
        with pytest.raises(AcpError, match="there is no session"):
            host.set_session_policy("none", ALLOW)

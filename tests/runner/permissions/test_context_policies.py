"""Context policies and the owner's rules are one engine: deny wins, audited, stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quarterdeck.policy import PermissionPolicy, Policy, PolicyRules, Rule
from quarterdeck.runner import RequestUpdated
from quarterdeck.runner.permissions.context_policies import ContextPolicies
from quarterdeck.runner.schema import RUNNER_TABLES
from quarterdeck.storage.database import open_database
from quarterdeck.views.context import SetPermissionPolicyCommand
from tests.hub.api.kit import ASK, Client, options, running, scripted

pytestmark = pytest.mark.anyio

APPROVE = PermissionPolicy(auto_approve=PolicyRules(writes=True, commands=True, reads=True))
DENY = PermissionPolicy(auto_deny=PolicyRules(writes=True))
OWNER_DENIES = Policy(rule=(Rule(decision="deny", name="never", writes=True),))
OWNER_ALLOWS = Policy(rule=(Rule(decision="allow", name="always", writes=True),))
NOBODY = Policy()


async def set_policy(hub: Any, session: str, policy: PermissionPolicy) -> None:
    command = SetPermissionPolicyCommand(policy=policy)
    await hub.runner.execute_context_command(session, command)


async def decision(client: Client) -> tuple[str, str]:
    newest = (await client.get("/api/decisions"))["decisions"][0]
    return newest["outcome"].get("optionId", ""), newest["by"].get("rule", "")


@pytest.mark.parametrize(
    ("owner", "context", "expected"),
    [
        (OWNER_DENIES, APPROVE, ("reject_once", "never")),
        (OWNER_ALLOWS, DENY, ("reject_once", "context policy: autoDeny")),
        (OWNER_ALLOWS, APPROVE, ("allow_once", "always")),
        (OWNER_DENIES, DENY, ("reject_once", "never")),
        (NOBODY, APPROVE, ("allow_once", "context policy: autoApprove")),
        (NOBODY, DENY, ("reject_once", "context policy: autoDeny")),
    ],
)
async def test_deny_wins_and_every_decision_is_audited_with_its_rule(
    tmp_path: Path, owner: Policy, context: PermissionPolicy, expected: tuple[str, str]
) -> None:
    given = options(tmp_path / "home", owner, mine=scripted(ASK))
    async with running(given) as (hub, client):
        session = await client.session("mine", tmp_path)
        pending: list[str] = []
        hub.runner.subscribe_news(
            lambda news: pending.append(news.status) if isinstance(news, RequestUpdated) else None
        )
        await set_policy(hub, session, context)
        await client.prompt(session, "k")
        assert (await client.ended(session, "k"))["state"] == "done"
        assert await decision(client) == expected
        assert "pending" not in pending


@pytest.mark.slow
async def test_a_context_policy_survives_a_restart_for_its_session_alone(
    tmp_path: Path,
) -> None:
    agent = scripted(ASK)
    given = options(tmp_path / "home", mine=agent)
    async with running(given) as (hub, client):
        session = await client.session("mine", tmp_path)
        other = await client.session("mine", tmp_path)
        await set_policy(hub, session, DENY)
    async with running(given) as (hub, client):
        await client.prompt(session, "again")
        assert (await client.ended(session, "again"))["state"] == "done"
        assert await decision(client) == ("reject_once", "context policy: autoDeny")
        await client.prompt(other, "other")
        (
            request,
        ) = await client.pending_permissions()  # the policy of another session does not decide it
        assert request["sessionId"] == other


async def test_a_policy_decides_what_waits_already(tmp_path: Path) -> None:
    async with running(options(tmp_path / "home", mine=scripted(ASK))) as (hub, client):
        session = await client.session("mine", tmp_path)
        await client.prompt(session, "k")
        await client.pending_permissions()
        await set_policy(hub, session, DENY)
        assert (await client.ended(session, "k"))["state"] == "done"
        assert await decision(client) == ("reject_once", "context policy: autoDeny")


async def test_a_stored_policy_that_cannot_be_read_denies(tmp_path: Path) -> None:
    async with open_database(tmp_path / "runner.db", RUNNER_TABLES) as database:
        policies = ContextPolicies(database)
        await policies.set("s\ud800", APPROVE, "owner")
        await policies.set("damaged", APPROVE, "owner")
        query = "UPDATE context_policies SET policy = '{' WHERE session_id = 'damaged'"
        await database.write(lambda connection: connection.execute(query))
        again = ContextPolicies(database)
        await again.load()
        kept = again.with_owner(OWNER_DENIES, "s\ud800").rule
        assert [rule.name for rule in kept] == [
            "never", "context policy: autoApprove", "context policy: autoDeny"
        ]  # fmt: skip
        (damaged,) = again.with_owner(NOBODY, "damaged").rule
        assert (damaged.decision, damaged.commands) == ("deny", True)
        assert again.with_owner(NOBODY, "none") is NOBODY
        again.forget("damaged")
        assert again.with_owner(NOBODY, "damaged") is NOBODY

"""Notifications: cryptography by its vectors, the rest against a push service on this computer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from msgspec import UNSET
from msgspec.structs import replace

from quarterdeck.errors import StartRefused
from quarterdeck.http.p256 import from_base64url, to_base64url
from quarterdeck.hub import Hub, HubOptions
from quarterdeck.hub.push.delivery import (
    AddressRefused,
    KeyInvalid,
    Recipient,
    deliver,
    encrypted,
    origin_of,
    push_key,
)
from quarterdeck.hub.push.service import elicitation_message, turn_message
from quarterdeck.policy import Policy, Rule
from quarterdeck.runner.sessions.catalogue import SessionOverview
from tests.hub.api.kit import ASK, Client, running, scripted
from tests.hub.push.push_service import Browser, LocalPushService, push_service

SAY = {"say": "done"}
NO_ORIGINS: frozenset[str] = frozenset()


@asynccontextmanager
async def hub_with(
    home: Path, service: LocalPushService, /, policy: Policy | None = None, **agents: Any
) -> AsyncIterator[tuple[Hub, Client]]:
    options = HubOptions(
        home=home,
        port=0,
        agents=agents,
        policy=policy or Policy(),
        push_services=(service.origin,),
    )
    async with running(options) as (hub, client):
        yield hub, client


async def subscribed(client: Client, service: LocalPushService, **kinds: bool) -> Browser:
    browser = Browser()
    body = {"subscription": browser.subscription(f"{service.origin}/send/1"), "kinds": kinds}
    await client.call("PUT", "/api/push", body)
    return browser


async def received(service: LocalPushService, browser: Browser) -> tuple[dict[str, str], Any]:
    return await anyio.to_thread.run_sync(partial(service.next, browser))


# ---- messages ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "title"),
    [("refused-agent", "Agent rejected"), ("config-changed", "Configuration changed")],
)
async def test_what_concerns_safety_is_pushed_to_every_device(
    tmp_path: Path, what: Any, title: str
) -> None:
    with push_service() as service:
        async with hub_with(tmp_path / "home", service) as (hub, client):
            none = {"permissions": False, "elicitations": False, "finished": False, "failed": False}
            browser = await subscribed(client, service, **none)
            owner = hub.auth.devices.get("owner")
            assert owner is not None
            await hub.auth.devices.record("unverified", owner, None)  # only in the history
            await hub.auth.devices.record(what, owner, "why")
            _, message = await received(service, browser)
    assert (message["kind"], message["title"]) == ("device", title)
    assert message["url"] == "/#/devices"


@pytest.mark.slow
async def test_a_permission_request_is_pushed_with_its_url(tmp_path: Path) -> None:
    with push_service() as service:
        async with hub_with(tmp_path / "home", service, asker=scripted(ASK)) as (hub, client):
            browser = await subscribed(client, service)
            session = await client.session("asker", tmp_path)
            await client.prompt(session, "p1")
            (request,) = await client.pending_permissions()
            headers, message = await received(service, browser)
            key = hub.push.options.key.public
    assert message["kind"] == "permissions"
    assert message["url"] == f"/#/inbox/{request['requestId']}"
    assert message["body"] == f"asker in {tmp_path.name} wants to change a file."
    assert "a.py" not in json.dumps(message)
    assert headers["content-encoding"] == "aes128gcm"
    assert headers["urgency"] == "high"
    assert int(headers["ttl"]) > 0
    check_signature(headers["authorization"], service.origin, key)


def test_a_request_of_a_sub_agent_names_the_agent_above_it() -> None:
    overview = SessionOverview(
        session_id="c",
        status="active",
        cwd="/w/project",
        additional_directories=(),
        last_seq=1,
        agent="claude",
    )
    assert _body(overview) == "claude in project needs your input."
    child = replace(overview, parent_session_id="p")
    assert _body(child) == "A sub-agent of claude in project needs your input."
    assert _body(replace(child, agent=UNSET)).startswith("A sub-agent of an agent in project")


def _body(session: SessionOverview) -> str:
    return elicitation_message("r1", session).body


def check_signature(authorization: str, origin: str, key: str) -> None:
    scheme, _, rest = authorization.partition(" ")
    token, public = (part.split("=", 1)[1] for part in rest.split(", "))
    assert (scheme, public) == ("vapid", key)
    signed, _, signature = token.rpartition(".")
    raw = from_base64url(signature)
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), from_base64url(public))
    point.verify(der, signed.encode(), ec.ECDSA(SHA256()))
    claims = json.loads(from_base64url(signed.split(".")[1]))
    assert claims["aud"] == origin
    assert claims["sub"].startswith(("https:", "mailto:"))


@pytest.mark.slow
async def test_a_new_device_is_pushed_to_the_other_devices(tmp_path: Path) -> None:
    with push_service() as service:
        async with hub_with(tmp_path / "home", service) as (_hub, client):
            browser = await subscribed(client, service, permissions=False, finished=False)
            made = await client.post("/api/pairings", {"scope": "approve"}, status=201)
            await client.post("/api/pair", {"code": made["code"], "name": "a phone"})
            _, message = await received(service, browser)
    assert (message["kind"], message["url"]) == ("device", "/#/devices")
    assert message["body"] == "a phone (scope: approve). If this was not you, revoke it."


@pytest.mark.slow
async def test_what_an_agent_did_after_an_approval_is_pushed_if_it_differs(tmp_path: Path) -> None:
    changed = {"progress": "edit-1", "input": {"path": "/etc/passwd"}}
    asker = scripted({**ASK, "allowed": [changed, {"finish": "edit-1"}]})
    with push_service() as service:
        async with hub_with(tmp_path / "home", service, asker=asker) as (_hub, client):
            off = {"permissions": False, "finished": False, "failed": False, "elicitations": False}
            browser = await subscribed(client, service, **off)
            session = await client.session("asker", tmp_path)
            await client.prompt(session, "p1")
            (request,) = await client.pending_permissions()
            answer = {"optionId": "allow_once", "digest": request["digest"]}
            await client.post(f"/api/permissions/{request['requestId']}/answer", answer)
            headers, message = await received(service, browser)
    assert (message["kind"], message["url"]) == ("mismatch", f"/#/s/{session}")
    assert headers["urgency"] == "high"
    assert "passwd" not in json.dumps(message)


@pytest.mark.slow
async def test_the_end_of_a_turn_is_pushed(tmp_path: Path) -> None:
    failing = scripted({"fail": "no luck"}, sessions={"id": "bad-{n}"})
    with push_service() as service:
        agents = hub_with(tmp_path / "home", service, good=scripted(SAY), bad=failing)
        async with agents as (_hub, client):
            browser = await subscribed(client, service)
            good = await client.session("good", tmp_path)
            await client.prompt(good, "p1")
            _, finished = await received(service, browser)
            bad = await client.session("bad", tmp_path)
            await client.prompt(bad, "p1")
            _, failed = await received(service, browser)
    assert (finished["kind"], finished["url"]) == ("finished", f"/#/s/{good}")
    assert (failed["kind"], failed["url"]) == ("failed", f"/#/s/{bad}")


@pytest.mark.slow
async def test_only_the_kinds_a_device_wants_are_sent(tmp_path: Path) -> None:
    with push_service() as service:
        async with hub_with(tmp_path / "home", service, asker=scripted(ASK)) as (_hub, client):
            browser = await subscribed(client, service, permissions=False)
            view = await client.call("PATCH", "/api/push", {"kinds": {"permissions": False}})
            assert view["subscription"]["kinds"]["permissions"] is False
            session = await client.session("asker", tmp_path)
            await client.prompt(session, "p1")
            (request,) = await client.pending_permissions()
            answer = {"digest": request["digest"], "optionId": "allow_once"}
            await client.post(f"/api/permissions/{request['requestId']}/answer", answer)
            _, message = await received(service, browser)
    assert message["kind"] == "finished"


@pytest.mark.slow
async def test_a_request_decided_by_a_rule_is_not_sent(tmp_path: Path) -> None:
    policy = Policy(rule=(Rule(decision="allow", writes=True),))
    with push_service() as service:
        hub = hub_with(tmp_path / "home", service, policy=policy, asker=scripted(ASK))
        async with hub as (_hub, client):
            browser = await subscribed(client, service)
            session = await client.session("asker", tmp_path)
            await client.prompt(session, "p1")
            _, message = await received(service, browser)
    assert message["kind"] == "finished"


# ---- delivery ----------------------------------------------------------------------------------


@pytest.mark.slow
async def test_delivery_to_a_busy_push_service_is_retried(tmp_path: Path) -> None:
    with push_service(503, 429, 201) as service:
        async with hub_with(tmp_path / "home", service, good=scripted(SAY)) as (hub, client):
            hub.push.options = _with_short_delays(hub)
            browser = await subscribed(client, service)
            session = await client.session("good", tmp_path)
            await client.prompt(session, "p1")
            messages = [(await received(service, browser))[1] for _ in range(3)]
            view = await client.until(
                "/api/push", lambda view: view["subscription"]["problem"] is None
            )
    assert messages[0] == messages[1] == messages[2]
    assert view["subscription"] is not None


def _with_short_delays(hub: Hub) -> Any:
    options = hub.push.options
    return type(options)(
        key=options.key,
        subject=options.subject,
        trusted=options.trusted,
        delay_seconds=0.01,
        retry_seconds=(0.01, 0.01, 0.01),
    )


async def test_a_subscription_that_has_ended_is_removed(tmp_path: Path) -> None:
    with push_service(410) as service:
        async with hub_with(tmp_path / "home", service) as (_hub, client):
            await subscribed(client, service)
            refused = await client.post("/api/push/test", status=410)
            view = await client.get("/api/push")
    assert "turn notifications on again" in refused["error"]["message"]
    assert view["subscription"] is None


async def test_a_test_message_is_sent_and_its_receipt_recorded(tmp_path: Path) -> None:
    with push_service() as service:
        async with hub_with(tmp_path / "home", service) as (_hub, client):
            await client.post("/api/push/test", status=404)
            browser = await subscribed(client, service)
            sent = await client.post("/api/push/test")
            _, message = await received(service, browser)
            await client.post("/api/push/receipts", {"id": "of another"}, status=404)
            await client.post("/api/push/receipts", {"id": message["id"]}, status=204)
            view = await client.get("/api/push")
            await client.call("DELETE", "/api/push", status=204)
            after = await client.get("/api/push")
    assert sent["id"] == message["id"]
    assert view["subscription"]["receivedAt"] is not None
    assert after["subscription"] is None


async def test_a_rejected_test_message_is_reported_with_the_reason(tmp_path: Path) -> None:
    with push_service(403) as service:
        async with hub_with(tmp_path / "home", service) as (_hub, client):
            await subscribed(client, service)
            refused = await client.post("/api/push/test", status=424)
            view = await client.get("/api/push")
    assert "did not accept the notification" in refused["error"]["message"]
    assert view["subscription"]["problem"].startswith("403")


async def test_a_subscription_survives_a_restart_with_the_same_key(tmp_path: Path) -> None:
    with push_service() as service:
        async with hub_with(tmp_path / "home", service) as (_hub, client):
            await subscribed(client, service, finished=False)
            before = await client.get("/api/push")
        async with hub_with(tmp_path / "home", service) as (_hub, client):
            assert await client.get("/api/push") == before
    assert (tmp_path / "home" / "push.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [
        {"endpoint": "http://push.example/1"},
        {"endpoint": "https://127.0.0.1/1"},
        {"endpoint": "https://[::1]/1"},
        {"endpoint": "https://192.168.0.1/1"},
        {"endpoint": "https://user@push.example/1"},
        {"endpoint": "https://push.example/a b"},
        {"endpoint": "file:///etc/passwd"},
        {"keys": {"p256dh": "AAAA", "auth": "AAAA"}},
        {"keys": {"p256dh": "not base64!", "auth": "AAAA"}},
    ],
)
async def test_an_invalid_subscription_is_rejected(tmp_path: Path, change: dict[str, Any]) -> None:
    with push_service() as service:
        async with hub_with(tmp_path / "home", service) as (_hub, client):
            given = {**Browser().subscription("https://push.example/1"), **change}
            await client.call("PUT", "/api/push", {"subscription": given}, status=400)


async def test_a_host_name_of_this_computer_is_not_contacted() -> None:
    delivery = await deliver("https://localhost:1/x", {}, b"", NO_ORIGINS)
    assert (delivery.status, delivery.is_retryable) == (400, False)


async def test_delivery_to_an_unreachable_push_service_can_be_retried() -> None:
    origin = "http://127.0.0.1:1"
    delivery = await deliver(f"{origin}/x", {}, b"", frozenset({origin}))
    assert (delivery.status, delivery.is_retryable) == (0, True)


def test_the_origin_of_an_endpoint_has_no_path() -> None:
    assert origin_of("https://push.example:444/a?b=c", NO_ORIGINS) == "https://push.example:444"
    with pytest.raises(AddressRefused):
        origin_of("https://push.example:port/", NO_ORIGINS)


# ---- cryptography ------------------------------------------------------------------------------


def test_encryption_matches_the_example_of_rfc_8291() -> None:
    number = int.from_bytes(from_base64url("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), "big")
    recipient = Recipient.read(
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "BTBZMqHH6r4Tts7J_aSIgg",
    )
    body = encrypted(
        b"When I grow up, I want to be a watermelon",
        recipient,
        private=ec.derive_private_key(number, ec.SECP256R1()),
        salt=from_base64url("DGv6ra1nlYgDCS1FRnbzlw"),
    )
    assert to_base64url(body) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWA"
        "mS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxs"
        "j_Qulcy4a-fN"
    )


def test_encrypting_twice_gives_two_bodies_that_both_decrypt() -> None:
    browser = Browser()
    recipient = Recipient(browser.public, browser.secret)
    one, other = (encrypted(b"a message", recipient) for _ in range(2))
    assert one != other
    assert browser.decrypted(one) == browser.decrypted(other) == b"a message"


def test_a_secret_of_the_wrong_length_is_rejected() -> None:
    with pytest.raises(KeyInvalid):
        Recipient.read(to_base64url(Browser().public), to_base64url(b"short"))


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "push.key"
    first = push_key(path)
    assert push_key(path).public == first.public
    path.chmod(0o644)
    with pytest.raises(StartRefused, match="other users"):
        push_key(path)
    path.chmod(0o600)
    path.write_text("no key\n")
    with pytest.raises(StartRefused, match="does not hold a key"):
        push_key(path)


def test_the_turn_of_a_session_with_an_invalid_id_has_a_url() -> None:
    session = SessionOverview(
        session_id="half \ud83d", status="active", cwd="/p", additional_directories=(), last_seq=1
    )
    message = turn_message(session, {"stopReason": "end_turn"})
    assert message is not None
    assert message.url == "/#/s/half%20%3F"

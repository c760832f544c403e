"""The gate over HTTP: who may pair, look, rename and revoke."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.http.origins import Listening
from quarterdeck.hub.api.endpoint import make_router
from tests.hub.auth.support import Clock, GuardedServer, open_guarded
from tests.hub.browser_keys import pair_browser
from tests.hub.served import UPGRADE, Reply

PROXIED = Listening(is_behind_proxy=True, allowed_hosts=("desk.example",))


async def call(
    guarded: GuardedServer, method: str, path: str, token: str, json: Any = None
) -> Reply:
    return await guarded.served.call(method, path, token=token, json=json)


async def test_a_program_pairs_and_gets_a_token_once(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        wanted = {"scope": "prompt", "name": "laptop"}
        made = await call(guarded, "POST", "/api/pairings", guarded.owner, wanted)
        assert made.status == 201
        assert made.json["pairing"]["scope"] == "prompt"
        listed = await call(guarded, "GET", "/api/pairings", guarded.owner)
        assert listed.json == {"pairings": [made.json["pairing"]]}
        assert made.json["code"] not in listed.body.decode()
        body = {"code": made.json["code"], "name": "my laptop"}
        paired = await guarded.served.call("POST", "/api/pair", json=body)
        assert paired.status == 200
        assert paired.json["device"]["name"] == "my laptop"
        assert paired.header("set-cookie") is None
        me = await call(guarded, "GET", "/api/device", paired.json["token"])
        assert me.json["id"] == paired.json["device"]["id"]
        assert me.json["scope"] == "prompt"
        assert (await call(guarded, "GET", "/api/pairings", guarded.owner)).json == {"pairings": []}


async def test_the_link_carries_the_long_code_where_no_server_sees_it(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        made = await call(guarded, "POST", "/api/pairings", guarded.owner, {})
        start = f"{guarded.served.origin}/#pair="
        assert made.json["link"].startswith(start)
        body = {"code": made.json["link"].removeprefix(start)}
        assert (await guarded.served.call("POST", "/api/pair", json=body)).status == 200


async def test_a_pairing_without_a_body_lets_a_device_approve(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        made = await call(guarded, "POST", "/api/pairings", guarded.owner)
        assert made.json["pairing"]["scope"] == "approve"


async def test_a_pairing_can_be_cancelled_once(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        made = await call(guarded, "POST", "/api/pairings", guarded.owner, {})
        path = f"/api/pairings/{made.json['pairing']['id']}"
        assert (await call(guarded, "DELETE", path, guarded.owner)).status == 204
        again = await call(guarded, "DELETE", path, guarded.owner)
        assert (again.status, again.json["error"]["code"]) == (404, "quarterdeck/not-found")
        body = {"code": made.json["code"]}
        assert (await guarded.served.call("POST", "/api/pair", json=body)).status == 403


@pytest.mark.parametrize("scope", ["view", "prompt", "approve"])
async def test_only_admin_pairs_renames_and_revokes(tmp_path: Path, scope: Any) -> None:
    async with open_guarded(tmp_path) as guarded:
        _, token = await guarded.device(scope)
        other, other_token = await guarded.device()
        for method, path, body in (
            ("POST", "/api/pairings", {}),
            ("GET", "/api/pairings", None),
            ("DELETE", "/api/pairings/x", None),
            ("PATCH", f"/api/devices/{other}", {"name": "mine"}),
            ("DELETE", f"/api/devices/{other}", None),
            ("DELETE", "/api/devices/owner", None),
        ):
            refused = await call(guarded, method, path, token, body)
            assert (refused.status, refused.json["error"]["code"]) == (403, "quarterdeck/forbidden")
        assert (await call(guarded, "GET", "/api/device", other_token)).status == 200
        deed = await call(guarded, "POST", "/api/deeds", token, {})
        assert deed.status == (200 if scope == "approve" else 403)


async def test_a_device_may_revoke_itself(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        device_id, token = await guarded.device("view")
        left = await call(guarded, "DELETE", f"/api/devices/{device_id}", token)
        assert left.status == 204
        assert (await call(guarded, "GET", "/api/device", token)).status == 401
        gone = await call(guarded, "DELETE", f"/api/devices/{device_id}", guarded.owner)
        assert gone.status == 404


async def test_logging_out_revokes_the_browser_and_forgets_what_it_stored(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        browser = await guarded.browser()
        left = await browser.call("POST", "/api/logout")
        assert left.status == 204
        assert left.header("clear-site-data") == '"storage"'
        assert (await browser.call("GET", "/api/device")).status == 401
        # The owner is the user of this computer, and outlives a logout.
        assert (await call(guarded, "POST", "/api/logout", guarded.owner)).status == 204
        assert (await call(guarded, "GET", "/api/device", guarded.owner)).status == 200


async def test_devices_are_listed_and_renamed(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        device_id, token = await guarded.device("view")
        renamed = await call(
            guarded, "PATCH", f"/api/devices/{device_id}", guarded.owner, {"name": " my\nphone "}
        )
        assert renamed.json["name"] == "my phone"
        listed = (await call(guarded, "GET", "/api/devices", token)).json["devices"]
        assert {each["id"]: each["name"] for each in listed} == {
            "owner": "this computer",
            device_id: "my phone",
        }
        assert b"qd_" not in (await call(guarded, "GET", "/api/devices", token)).body
        empty = await call(
            guarded, "PATCH", f"/api/devices/{device_id}", guarded.owner, {"name": "\n"}
        )
        assert empty.status == 400
        missing = await call(guarded, "PATCH", "/api/devices/x", guarded.owner, {"name": "x"})
        assert missing.status == 404


async def test_a_list_of_devices_shows_their_last_addresses(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        device_id, token = await guarded.device("view")
        for lines in (("User-Agent: Phone/1\t\x7f of mine",), UPGRADE):
            await guarded.get("/api/socket", *lines, token=token)
        listed = (await call(guarded, "GET", "/api/devices", guarded.owner)).json["devices"]
        (device,) = (each for each in listed if each["id"] == device_id)
        assert (device["lastAddress"], device["userAgent"]) == ("127.0.0.1", "Phone/1 of mine")
        log = await call(guarded, "GET", "/api/devices/log", guarded.owner)
        told = [(each["what"], each["address"]) for each in log.json["events"]]
        assert told == [("new-address", "127.0.0.1"), ("paired", "127.0.0.1")]
        assert log.json["events"][0]["deviceId"] == "owner"
        assert (await call(guarded, "GET", "/api/devices/log", token)).status == 403


@pytest.mark.parametrize("scope", ["view", "prompt", "approve", "admin"])
async def test_where_others_are_is_shown_to_admin_alone(tmp_path: Path, scope: Any) -> None:
    async with open_guarded(tmp_path) as guarded:
        own_id, token = await guarded.device(scope)
        other_id, other_token = await guarded.device("view")
        for each in (token, other_token):
            await guarded.get("/api/secret", "User-Agent: Phone/1", token=each)
        listed = (await guarded.get("/api/devices", "User-Agent: Phone/1", token=token)).json[
            "devices"
        ]
        known = {each["id"]: (each["lastAddress"], each["userAgent"]) for each in listed}
        assert known[own_id] == ("127.0.0.1", "Phone/1")
        is_shown = scope == "admin"
        assert known[other_id] == (("127.0.0.1", "Phone/1") if is_shown else (None, None))
        other = next(each for each in listed if each["id"] == other_id)
        assert other["lastSeenAt"]
        assert other["name"]


async def test_a_device_gets_a_new_token_and_the_old_one_ends(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        _, old = await guarded.device("view")
        new = (await call(guarded, "POST", "/api/device/token", old)).json["token"]
        assert (await call(guarded, "GET", "/api/device", new)).status == 200
        assert (await call(guarded, "GET", "/api/device", old)).status == 401
        assert (await call(guarded, "POST", "/api/device/token", guarded.owner)).status == 403


async def test_a_browser_never_gets_a_token(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        browser = await guarded.browser("view")
        refused = await browser.call("POST", "/api/device/token")
        assert (refused.status, refused.json["error"]["code"]) == (403, "quarterdeck/forbidden")
        assert "pair it again" in refused.json["error"]["message"]
        _, codes = await guarded.auth.pairings.create(scope="view")
        for line in (f"Origin: {guarded.served.origin}", "Sec-Fetch-Site: same-origin"):
            old = await guarded.served.call("POST", "/api/pair", line, json={"code": codes.long})
            assert old.status == 400
            assert old.json["error"]["message"].endswith("reload it, then pair again")
        await pair_browser(guarded.served, codes.long)  # the code was not used up


async def test_the_owner_stays_what_it_is(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        for method, body in (("DELETE", None), ("PATCH", {"scope": "view"})):
            refused = await call(guarded, method, "/api/devices/owner", guarded.owner, body)
            assert refused.status == 403
            assert "this is the account that runs the hub" in refused.json["error"]["message"]
        renamed = await call(
            guarded, "PATCH", "/api/devices/owner", guarded.owner, {"name": "desk"}
        )
        assert renamed.json["name"] == "desk"


async def test_a_body_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    tries: list[tuple[str, Any]] = [
        ("/api/pair", {}),
        ("/api/pair", {"code": 5}),
        ("/api/pair", {"code": ""}),
        ("/api/pair", {"code": "x" * 101}),
        ("/api/pair", []),
        ("/api/pairings", {"scope": "root"}),
        ("/api/pairings", {"seconds": 1e9}),
        ("/api/pairings", {"seconds": -1}),
        ("/api/pairings", {"deviceSeconds": 0}),
        ("/api/pairings", {"name": "x" * 201}),
        ("/api/pair", {"code": "x", "scope": "admin"}),
        ("/api/pairings", {"skope": "view"}),
    ]
    async with open_guarded(tmp_path) as guarded:
        for path, body in tries:
            refused = await call(guarded, "POST", path, guarded.owner, body)
            assert (refused.status, refused.json["error"]["code"]) == (400, "quarterdeck/invalid")
            assert refused.json["error"]["message"].startswith("invalid body: ")
        unknown = await call(guarded, "PATCH", "/api/devices/owner", guarded.owner, {"nmae": "x"})
        assert (unknown.status, "nmae" in unknown.json["error"]["message"]) == (400, True)


async def test_behind_a_proxy_signatures_are_for_the_public_origin(tmp_path: Path) -> None:
    async with open_guarded(tmp_path, listening=PROXIED) as guarded:
        made = await call(guarded, "POST", "/api/pairings", guarded.owner, {})
        assert made.json["link"].startswith("https://desk.example/#pair=")
        browser, paired = await pair_browser(
            guarded.served, made.json["code"], host="desk.example", origin="https://desk.example"
        )
        deleted = paired.header("set-cookie") or ""
        assert deleted.startswith('__Host-quarterdeck-443="";')
        assert {"Secure", "Path=/", "Max-Age=0"} <= set(deleted.split("; "))
        assert (await browser.call("GET", "/api/device")).status == 200
        # A page of plain http at the same name is a stranger, also with a key that it stole.
        plain = replace(browser, origin="http://desk.example")
        assert (await plain.call("GET", "/api/device")).status == 403
        line = await plain.line("GET", "/api/device")
        first = "GET /api/device HTTP/1.1"
        assert (await guarded.served.ask(first, line, host="desk.example")).status == 401


@pytest.mark.parametrize(("listening", "is_slowed"), [(PROXIED, False), (Listening(), True)])
async def test_only_a_proxy_may_say_whom_it_speaks_for(
    tmp_path: Path, listening: Listening, is_slowed: bool
) -> None:
    async with open_guarded(tmp_path, listening=listening, now=Clock()) as guarded:
        statuses = set()
        for number in range(20):
            line = f"X-Forwarded-For: 10.0.0.{number}"
            body = {"code": "AAAA-AAAA"}
            statuses.add((await guarded.served.call("POST", "/api/pair", line, json=body)).status)
        assert statuses == ({403, 429} if is_slowed else {403})


async def test_the_table_has_no_public_endpoint_but_pairing_and_its_nonce(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        public = [each for each in guarded.endpoints if each.scope is None and "/api" in each.path]
        paths = [(each.method, each.path) for each in public]
        assert paths == [("GET", "/api/nonce"), ("POST", "/api/pair")]
        assert make_router(guarded.endpoints).routes


async def test_a_browser_that_pairs_again_is_one_device(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        before = await guarded.browser()
        _, codes = await guarded.auth.pairings.create(scope="view")
        after, _ = await pair_browser(guarded.served, codes.long, before=before)
        assert {each.id for each in guarded.auth.devices.all} == {"owner", after.device_id}
        assert before.device_id != after.device_id
        assert (await before.call("GET", "/api/device")).status == 401
        assert (await after.call("GET", "/api/device")).status == 200


async def test_a_program_that_lets_another_in_stays_what_it_is(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        _, token = await guarded.device("admin")
        made = await call(guarded, "POST", "/api/pairings", token, {})
        paired = await call(guarded, "POST", "/api/pair", token, {"code": made.json["code"]})
        assert paired.status == 200
        assert (await call(guarded, "GET", "/api/device", token)).status == 200


async def test_a_database_that_fails_is_a_sentence_without_paths(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as guarded:
        with closing(sqlite3.connect(tmp_path / "hub.db")) as database:
            database.execute("DROP TABLE pairings")
        failed = await guarded.served.call("POST", "/api/pair", json={"code": "AAAA-AAAA"})
        assert (failed.status, failed.json["error"]["code"]) == (503, "quarterdeck/unavailable")
        assert str(tmp_path) not in failed.body.decode()
        assert (await call(guarded, "GET", "/api/device", guarded.owner)).status == 200

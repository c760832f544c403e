"""The gate over HTTP: who may pair, look, rename and revoke."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.http.origins import Listening
from quarterdeck.hub.api.endpoint import make_router
from tests.hub.auth.support import Clock, Hut, open_hut
from tests.hub.served import UPGRADE, Reply

PROXIED = Listening(is_behind_proxy=True, allowed_hosts=("desk.example",))


async def call(hut: Hut, method: str, path: str, token: str, json: Any = None) -> Reply:
    return await hut.served.call(method, path, token=token, json=json)


async def test_a_program_pairs_and_gets_a_token_once(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        wanted = {"scope": "prompt", "name": "laptop"}
        made = await call(hut, "POST", "/api/pairings", hut.owner, wanted)
        assert made.status == 201
        assert made.json["pairing"]["scope"] == "prompt"
        listed = await call(hut, "GET", "/api/pairings", hut.owner)
        assert listed.json == {"pairings": [made.json["pairing"]]}
        assert made.json["code"] not in listed.body.decode()
        body = {"code": made.json["code"], "name": "my laptop"}
        paired = await hut.served.call("POST", "/api/pair", json=body)
        assert paired.status == 200
        assert paired.json["device"]["name"] == "my laptop"
        assert paired.header("set-cookie") is None
        me = await call(hut, "GET", "/api/device", paired.json["token"])
        assert me.json["id"] == paired.json["device"]["id"]
        assert me.json["scope"] == "prompt"
        assert (await call(hut, "GET", "/api/pairings", hut.owner)).json == {"pairings": []}


async def test_the_link_carries_the_long_code_where_no_server_sees_it(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        made = await call(hut, "POST", "/api/pairings", hut.owner, {})
        start = f"{hut.served.origin}/#pair="
        assert made.json["link"].startswith(start)
        body = {"code": made.json["link"].removeprefix(start)}
        assert (await hut.served.call("POST", "/api/pair", json=body)).status == 200


async def test_a_pairing_without_a_body_lets_a_device_approve(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        made = await call(hut, "POST", "/api/pairings", hut.owner)
        assert made.json["pairing"]["scope"] == "approve"


async def test_a_pairing_can_be_cancelled_once(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        made = await call(hut, "POST", "/api/pairings", hut.owner, {})
        path = f"/api/pairings/{made.json['pairing']['id']}"
        assert (await call(hut, "DELETE", path, hut.owner)).status == 204
        again = await call(hut, "DELETE", path, hut.owner)
        assert (again.status, again.json["error"]["code"]) == (404, "quarterdeck/not-found")
        body = {"code": made.json["code"]}
        assert (await hut.served.call("POST", "/api/pair", json=body)).status == 403


@pytest.mark.parametrize("scope", ["view", "prompt", "approve"])
async def test_only_admin_pairs_renames_and_revokes(tmp_path: Path, scope: Any) -> None:
    async with open_hut(tmp_path) as hut:
        _, token = await hut.device(scope)
        other, other_token = await hut.device()
        for method, path, body in (
            ("POST", "/api/pairings", {}),
            ("GET", "/api/pairings", None),
            ("DELETE", "/api/pairings/x", None),
            ("PATCH", f"/api/devices/{other}", {"name": "mine"}),
            ("DELETE", f"/api/devices/{other}", None),
            ("DELETE", "/api/devices/owner", None),
        ):
            refused = await call(hut, method, path, token, body)
            assert (refused.status, refused.json["error"]["code"]) == (403, "quarterdeck/forbidden")
        assert (await call(hut, "GET", "/api/device", other_token)).status == 200
        deed = await call(hut, "POST", "/api/deeds", token, {})
        assert deed.status == (200 if scope == "approve" else 403)


async def test_a_device_may_revoke_itself(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        device_id, token = await hut.device("view")
        left = await call(hut, "DELETE", f"/api/devices/{device_id}", token)
        assert left.status == 204
        assert "Max-Age=0" in (left.header("set-cookie") or "")
        assert (await call(hut, "GET", "/api/device", token)).status == 401
        gone = await call(hut, "DELETE", f"/api/devices/{device_id}", hut.owner)
        assert gone.status == 404


async def test_logging_out_revokes_the_browser_and_forgets_what_it_stored(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        cookie, own = await hut.browser(), f"Origin: {hut.served.origin}"
        left = await hut.served.call("POST", "/api/logout", cookie, own)
        assert left.status == 204
        assert left.header("clear-site-data") == '"storage"'
        assert "Max-Age=0" in (left.header("set-cookie") or "")
        assert (await hut.get("/api/device", cookie)).status == 401
        # The owner's token is in a file; it outlives a logout.
        assert (await call(hut, "POST", "/api/logout", hut.owner)).status == 204
        assert (await call(hut, "GET", "/api/device", hut.owner)).status == 200


async def test_devices_are_listed_and_renamed(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        device_id, token = await hut.device("view")
        renamed = await call(
            hut, "PATCH", f"/api/devices/{device_id}", hut.owner, {"name": " my\nphone "}
        )
        assert renamed.json["name"] == "my phone"
        listed = (await call(hut, "GET", "/api/devices", token)).json["devices"]
        assert {each["id"]: each["name"] for each in listed} == {
            "owner": "this computer",
            device_id: "my phone",
        }
        assert b"qd_" not in (await call(hut, "GET", "/api/devices", token)).body
        empty = await call(hut, "PATCH", f"/api/devices/{device_id}", hut.owner, {"name": "\n"})
        assert empty.status == 400
        missing = await call(hut, "PATCH", "/api/devices/x", hut.owner, {"name": "x"})
        assert missing.status == 404


async def test_a_list_of_devices_tells_from_where_they_were_heard(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        device_id, token = await hut.device("view")
        for lines in (("User-Agent: Phone/1\t\x7f of mine",), UPGRADE):
            await hut.get("/api/socket", *lines, token=token)
        listed = (await call(hut, "GET", "/api/devices", hut.owner)).json["devices"]
        (device,) = (each for each in listed if each["id"] == device_id)
        assert (device["lastAddress"], device["userAgent"]) == ("127.0.0.1", "Phone/1 of mine")
        log = await call(hut, "GET", "/api/devices/log", hut.owner)
        told = [(each["what"], each["address"]) for each in log.json["events"]]
        assert told == [("new-address", "127.0.0.1"), ("paired", "127.0.0.1")]
        assert log.json["events"][0]["deviceId"] == "owner"
        assert (await call(hut, "GET", "/api/devices/log", token)).status == 403


@pytest.mark.parametrize("scope", ["view", "prompt", "approve", "admin"])
async def test_where_others_are_is_shown_to_admin_alone(tmp_path: Path, scope: Any) -> None:
    async with open_hut(tmp_path) as hut:
        own_id, token = await hut.device(scope)
        other_id, other_token = await hut.device("view")
        for each in (token, other_token):
            await hut.get("/api/secret", "User-Agent: Phone/1", token=each)
        listed = (await hut.get("/api/devices", "User-Agent: Phone/1", token=token)).json["devices"]
        known = {each["id"]: (each["lastAddress"], each["userAgent"]) for each in listed}
        assert known[own_id] == ("127.0.0.1", "Phone/1")
        is_shown = scope == "admin"
        assert known[other_id] == (("127.0.0.1", "Phone/1") if is_shown else (None, None))
        other = next(each for each in listed if each["id"] == other_id)
        assert other["lastSeenAt"]
        assert other["name"]


async def test_a_device_gets_a_new_token_and_the_old_one_ends(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        _, old = await hut.device("view")
        new = (await call(hut, "POST", "/api/device/token", old)).json["token"]
        assert (await call(hut, "GET", "/api/device", new)).status == 200
        assert (await call(hut, "GET", "/api/device", old)).status == 401
        assert (await call(hut, "POST", "/api/device/token", hut.owner)).status == 403


async def test_a_browser_gets_its_new_token_as_a_cookie(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        cookie = await hut.browser("view")
        origin = f"Origin: {hut.served.origin}"
        renewed = await hut.served.call("POST", "/api/device/token", origin, cookie)
        assert b"qd_" not in renewed.body
        fresh = "Cookie: " + (renewed.header("set-cookie") or "").partition(";")[0]
        assert fresh != cookie
        assert (await hut.get("/api/device", fresh)).status == 200
        assert (await hut.get("/api/device", cookie)).status == 401


async def test_the_owner_stays_what_it_is(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        for method, body in (("DELETE", None), ("PATCH", {"scope": "view"})):
            refused = await call(hut, method, "/api/devices/owner", hut.owner, body)
            assert refused.status == 403
            assert "remove the file `token`" in refused.json["error"]["message"]
        renamed = await call(hut, "PATCH", "/api/devices/owner", hut.owner, {"name": "desk"})
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
    async with open_hut(tmp_path) as hut:
        for path, body in tries:
            refused = await call(hut, "POST", path, hut.owner, body)
            assert (refused.status, refused.json["error"]["code"]) == (400, "quarterdeck/invalid")
            assert refused.json["error"]["message"].startswith("the body cannot be used: ")
        unknown = await call(hut, "PATCH", "/api/devices/owner", hut.owner, {"nmae": "x"})
        assert (unknown.status, "nmae" in unknown.json["error"]["message"]) == (400, True)


async def test_behind_a_proxy_the_cookie_is_secure_and_bound_to_the_host(tmp_path: Path) -> None:
    async with open_hut(tmp_path, listening=PROXIED) as hut:
        made = await call(hut, "POST", "/api/pairings", hut.owner, {})
        assert made.json["link"].startswith("https://desk.example/#pair=")
        body = b'{"code":"%s"}' % made.json["code"].encode()
        first = "POST /api/pair HTTP/1.1"
        lines = ("Origin: https://desk.example", "Content-Type: application/json")
        paired = await hut.served.ask(first, *lines, host="desk.example", body=body)
        cookie = paired.header("set-cookie") or ""
        assert cookie.startswith("__Host-quarterdeck-443=qd_")
        assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        line = "Cookie: " + cookie.partition(";")[0]
        asked = await hut.served.ask("GET /api/device HTTP/1.1", line, host="desk.example")
        assert asked.status == 200
        # A page of plain http at the same name is a stranger.
        plain = "Origin: http://desk.example"
        refused = await hut.served.ask("GET /api/device HTTP/1.1", line, plain, host="desk.example")
        assert refused.status == 403


@pytest.mark.parametrize(("listening", "is_slowed"), [(PROXIED, False), (Listening(), True)])
async def test_only_a_proxy_may_say_whom_it_speaks_for(
    tmp_path: Path, listening: Listening, is_slowed: bool
) -> None:
    async with open_hut(tmp_path, listening=listening, now=Clock()) as hut:
        statuses = set()
        for number in range(20):
            line = f"X-Forwarded-For: 10.0.0.{number}"
            body = {"code": "AAAA-AAAA"}
            statuses.add((await hut.served.call("POST", "/api/pair", line, json=body)).status)
        assert statuses == ({403, 429} if is_slowed else {403})


async def test_the_table_has_no_public_endpoint_but_pairing(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        public = [each for each in hut.endpoints if each.scope is None and "/api" in each.path]
        assert [(each.method, each.path) for each in public] == [("POST", "/api/pair")]
        assert make_router(hut.endpoints).routes


async def test_a_browser_that_pairs_again_is_one_device(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        cookie, own = await hut.browser(), f"Origin: {hut.served.origin}"
        before = (await hut.get("/api/device", cookie)).json["id"]
        _, codes = await hut.gate.pairings.create(scope="view")
        again = await hut.served.call("POST", "/api/pair", cookie, own, json={"code": codes.long})
        after = again.json["device"]["id"]
        assert {each.id for each in hut.gate.devices.all} == {"owner", after}
        assert before != after
        assert (await hut.get("/api/device", cookie)).status == 401


async def test_a_program_that_lets_another_in_stays_what_it_is(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        _, token = await hut.device("admin")
        made = await call(hut, "POST", "/api/pairings", token, {})
        paired = await call(hut, "POST", "/api/pair", token, {"code": made.json["code"]})
        assert paired.status == 200
        assert (await call(hut, "GET", "/api/device", token)).status == 200


async def test_a_database_that_fails_is_a_sentence_without_paths(tmp_path: Path) -> None:
    async with open_hut(tmp_path) as hut:
        with closing(sqlite3.connect(tmp_path / "hub.db")) as database:
            database.execute("DROP TABLE pairings")
        failed = await hut.served.call("POST", "/api/pair", json={"code": "AAAA-AAAA"})
        assert (failed.status, failed.json["error"]["code"]) == (503, "quarterdeck/unavailable")
        assert str(tmp_path) not in failed.body.decode()
        assert (await call(hut, "GET", "/api/device", hut.owner)).status == 200

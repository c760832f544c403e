"""Pairing a browser that the hub does not know, and revoking it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import Route, expect

from tests.page.browsing import OpenDevice, StartHub
from tests.page.hubs import playing
from tests.page.test_approvals import ASK


def test_a_link_pairs_a_device_and_its_code_leaves_the_address(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    page = open_device(hub, None, place="/")
    page.goto(hub.link("approve"))
    expect(page.get_by_label("Pairing code", exact=True)).to_have_count(0)
    page.get_by_label("Device name").fill("Pocket")
    assert "pair" not in page.url
    page.get_by_role("button", name="Pair this device").click()
    expect(page.get_by_text("No sessions yet")).to_be_visible()
    expect(page.get_by_text("Live")).to_be_visible()
    devices = {each["name"]: each["scope"] for each in hub.call("GET", "/api/devices")["devices"]}
    assert devices["Pocket"] == "approve"


def test_a_code_can_be_typed(start_hub: StartHub, open_device: OpenDevice) -> None:
    hub = start_hub()
    page = open_device(hub, None)
    code = hub.call("POST", "/api/pairings", {"scope": "view"})["code"]
    page.get_by_label("Pairing code", exact=True).fill(code.lower())
    page.get_by_role("button", name="Pair this device").click()
    expect(page.get_by_text("This device can only view sessions.")).to_be_visible()


def test_a_wrong_code_is_refused_in_a_sentence(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    page = open_device(start_hub(), None)
    page.get_by_label("Pairing code", exact=True).fill("AAAA-AAAA")
    page.get_by_role("button", name="Pair this device").click()
    expect(page.get_by_role("alert")).to_contain_text("wrong, already used or expired")


def test_a_device_is_paired_from_another_and_revoked_again(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    first = open_device(hub, "admin", place="/#/devices")
    first.get_by_role("button", name="Pair a device").click()
    scopes = first.get_by_role("radio")
    scopes.first.press("ArrowDown")
    expect(scopes.nth(1)).to_be_focused()
    scopes.nth(1).press("ArrowUp")
    scopes.first.press("ArrowUp")
    expect(scopes.last).to_be_focused()
    first.get_by_role("radio", name="View See sessions").click()
    first.get_by_role("button", name="Show code").click()
    expect(first.get_by_text("works only in a browser on the hub's computer")).to_be_visible()
    expect(first.get_by_role("img", name=re.compile("QR code"))).to_have_count(0)
    link = first.locator(".link-line code").inner_text()

    second = open_device(hub, None)
    second.goto(link)
    second.get_by_label("Device name").fill("Tablet")
    second.get_by_role("button", name="Pair this device").click()
    expect(second.get_by_text("No sessions yet")).to_be_visible()

    expect(first.get_by_text("Tablet is paired")).to_be_visible()
    first.get_by_role("button", name="Done").click()
    first.get_by_role("button", name=re.compile("Tablet")).click()
    first.get_by_role("button", name="Revoke").click()
    first.get_by_role("button", name=re.compile("Tap again")).click()
    expect(second.get_by_role("button", name="Pair this device")).to_be_visible()


def test_devices_listed_late_are_not_taken_for_the_new_one(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    page = open_device(hub, "admin")
    held: list[Route] = []
    page.route("**/api/devices", lambda route: held.append(route), times=1)  # noqa: PLW0108 - it is wrapped
    page.goto(hub.url + "/#/devices")
    page.get_by_role("button", name="Pair a device").click()
    page.get_by_role("button", name="Show code").click()
    shown = page.get_by_text("Or enter this pairing code")
    expect(shown).to_be_visible()
    with page.expect_response("**/api/devices"):
        held.pop().continue_()
    devices = page.get_by_role("listitem").filter(has=page.get_by_role("button"))
    expect(devices).to_have_count(2)
    expect(shown).to_be_visible()


def test_the_history_of_devices_is_shown_to_admin(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(asking=playing(ASK))
    reader = open_device(hub, "approve", place="/#/devices")
    expect(reader.get_by_text("Only an admin device can pair")).to_be_visible()
    expect(reader.get_by_role("heading", name="History")).to_have_count(0)
    (other,) = [
        each for each in hub.call("GET", "/api/devices")["devices"] if each["id"] != "owner"
    ]
    hub.call("PATCH", f"/api/devices/{other['id']}", {"name": "<b>Tab\u202elet"})
    session = hub.session("asking", folder)
    hub.prompt(session, "go")
    reader.goto(f"{hub.url}/#/s/{session}")
    allow = reader.get_by_role("button", name="Allow once")
    expect(allow).to_have_attribute("aria-disabled", "false")
    allow.tap()
    hub.until("/api/permissions", lambda answer: not answer["permissions"])

    page = open_device(hub, "admin", place="/#/devices")
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    lines = page.locator(".decision")
    expect(lines.filter(has_text="paired")).to_have_count(2)
    expect(lines.filter(has_text="name or scope changed")).to_contain_text("<b>Tab")
    page.get_by_role("button", name=re.compile("Tab")).click()
    sheet = page.get_by_role("dialog")
    expect(sheet.locator(".decision").filter(has_text="paired")).to_have_count(1)
    expect(sheet.locator(".decision").filter(has_text="Allowed once")).to_have_count(1)


def test_a_revocation_that_is_not_stored_yet_says_what_to_do(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    open_device(hub, "view")
    page = open_device(hub, "admin", place="/#/devices")
    body = json.dumps({"message": "the device is revoked, but the disk is full; free up space"})

    def answer(route: Route) -> None:
        if route.request.method == "DELETE":
            route.fulfill(status=202, content_type="application/json", body=body)
        else:
            route.continue_()

    page.route("**/api/devices/*", answer)
    page.get_by_role("button", name=re.compile("View")).click()
    page.get_by_role("button", name="Revoke").click()
    page.get_by_role("button", name=re.compile("Tap again")).click()
    shown = page.get_by_text("The device is revoked, but the disk is full; free up space.")
    expect(shown).to_be_visible()


def test_an_answer_that_is_not_stored_yet_says_what_to_do(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(asking=playing(ASK))
    session = hub.session("asking", folder)
    page = open_device(hub, "approve", place=f"/#/s/{session}")

    def answer(route: Route) -> None:
        response = route.fetch()
        problem = "rejected; the log cannot be written: make room"
        route.fulfill(response=response, json={**response.json(), "problem": problem})

    page.route("**/api/permissions/*/answer", answer)
    hub.prompt(session, "go")
    reject = page.get_by_role("button", name="Reject", exact=True)
    expect(reject).to_have_attribute("aria-disabled", "false")
    reject.tap()
    expect(page.get_by_text("Rejected; the log cannot be written: make room.")).to_be_visible()

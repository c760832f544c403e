"""Usable with a screen reader and with a keyboard alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.page.browsing import OpenDevice, StartHub
from tests.page.hubs import HubProcess, playing

AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
ASK: dict[str, Any] = {
    "title": "Delete it",
    "kind": "execute",
    "input": {"command": "rm -rf build"},
}
CHANGE = {"path": "{cwd}/a.py", "old": "x = 1\n", "new": "y = 1\n"}


def violations(page: Page) -> list[str]:
    page.evaluate(AXE.read_text(encoding="utf-8"))
    page.evaluate("() => Promise.allSettled(document.getAnimations().map(a => a.finished))")
    found = page.evaluate("() => axe.run(document)")
    return [
        f"{each['id']}: {node['html'][:120]} ({node['failureSummary'][:200]})"
        for each in found["violations"]
        for node in each["nodes"]
    ]


def _busy(start_hub: StartHub, folder: Path) -> tuple[HubProcess, str]:
    steps = (
        {"think": "Where is it?"},
        {"say": "## Found\n\n- [one](https://example.com)\n\n| a | b |\n| - | - |\n| c | d |"},
        {"plan": ["[x] Look", "[>] Change", "Check"]},
        {"tool": "t1", "title": "Edit a.py", "kind": "edit"},
        {"finish": "t1", "diff": CHANGE},
        {"tool": "t2", "title": "make", "kind": "execute"},
        {"finish": "t2", "text": "\x1b[31mfailed\x1b[0m", "status": "failed"},
        {"ask": "t3", **ASK},
    )
    hub = start_hub(busy=playing(*steps, sessions={"modes": ["ask", "code"]}))
    session = hub.session("busy", folder)
    hub.prompt(session, "Clean up")
    hub.until("/api/permissions", lambda answer: answer["permissions"])
    return hub, session


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("desktop", [False, True], ids=["phone", "desktop"])
def test_no_screen_has_what_axe_finds(
    start_hub: StartHub, open_device: OpenDevice, folder: Path, theme: str, desktop: bool
) -> None:
    hub, session = _busy(start_hub, folder)
    page = open_device(hub, None, desktop=desktop)
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
    found: dict[str, list[str]] = {"pair": violations(page)}
    page.goto(hub.link("admin"))
    page.get_by_role("button", name="Pair this device").click()
    page.get_by_role("navigation", name="Main").wait_for()
    places = ("", f"s/{session}", "inbox", "agents", "new", "devices", "settings")
    for place in places:
        page.goto(f"{hub.url}/#/{place}")
        page.get_by_role("heading", level=1).first.wait_for(state="attached")
        page.get_by_text("Live").first.wait_for()
        if place.startswith("s/"):
            page.get_by_text("Waits for your answer").wait_for()
            for card in page.get_by_role("article", name=re.compile("^Tool: (Edit|make)")).all():
                card.get_by_role("button").first.click()
        found[place] = violations(page)
    page.get_by_role("button", name="Sign out this device").wait_for()
    assert {place: each for place, each in found.items() if each} == {}


def test_a_session_is_run_with_the_keyboard_alone(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub, _ = _busy(start_hub, folder)
    page = open_device(hub, desktop=True)
    page.get_by_role("link", name=re.compile("waiting")).first.wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    row = page.get_by_role("link", name=re.compile("harbour")).first
    row.focus()
    page.keyboard.press("Enter")
    reject = page.get_by_role("button", name="Reject")
    expect(reject).to_have_attribute("aria-disabled", "false")
    for _ in range(60):
        page.keyboard.press("Tab")
        if reject.evaluate("button => button === document.activeElement"):
            break
    expect(reject).to_be_focused()
    page.keyboard.press("Enter")
    hub.until("/api/permissions", lambda answer: not answer["permissions"])
    expect(page.locator("#main")).to_be_focused()
    mode = page.locator(".composer").get_by_role("button", name=re.compile("^Mode"))
    mode.focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    expect(mode).to_be_focused()
    assert hub.call("GET", "/api/decisions")["decisions"][0]["optionKind"] == "reject_once"


def test_nothing_is_wider_than_a_small_phone(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub, session = _busy(start_hub, folder)
    page = open_device(hub)
    page.set_viewport_size({"width": 360, "height": 640})
    for place in ("", f"s/{session}", "inbox", "agents", "new", "devices", "settings"):
        page.goto(f"{hub.url}/#/{place}")
        page.get_by_text("Live").first.wait_for(state="attached")
        wider = page.evaluate("() => document.documentElement.scrollWidth > innerWidth")
        assert not wider, place

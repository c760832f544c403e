"""Usable with a screen reader and with a keyboard alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.page.browsing import OpenDevice, StartHub, pair
from tests.page.hubs import HubProcess, playing

AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
ASK: dict[str, Any] = {
    "title": "Delete it",
    "kind": "execute",
    "input": {"command": "rm -rf build"},
}
CHANGE = {"path": "{cwd}/a.py", "old": "x = 1\n", "new": "y = 1\n"}
# Colours change in a movement that begins with the next picture.
SETTLED = """async () => {
    for (const _ of [1, 2]) await new Promise(next => requestAnimationFrame(next))
    await Promise.allSettled(document.getAnimations()
        .filter(each => each.effect.getComputedTiming().endTime !== Infinity)
        .map(each => each.finished))
}"""


def violations(page: Page, *rules: str) -> list[str]:
    """Return what axe finds, by these rules or by all of them."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    page.evaluate(SETTLED)
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{each['id']}: {node['html'][:120]} ({node['failureSummary'][:200]})"
        for each in found["violations"]
        for node in each["nodes"]
    ]


def in_both_colours(page: Page) -> list[str]:
    """Everything in light; in dark, of which only the colours differ, those."""
    _change_to(page, "light")
    light = violations(page)
    _change_to(page, "dark")
    return light + [f"dark {each}" for each in violations(page, "color-contrast")]


def _change_to(page: Page, theme: Literal["light", "dark"]) -> None:
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")
    expect(page.locator("html")).to_have_attribute(
        "data-theme", theme
    )  # the page follows by itself


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


@pytest.mark.parametrize("desktop", [False, True], ids=["phone", "desktop"])
def test_axe_finds_no_violations_on_any_screen_in_light_and_dark(
    start_hub: StartHub, open_device: OpenDevice, folder: Path, desktop: bool
) -> None:
    hub, session = _busy(start_hub, folder)
    page = open_device(hub, None, desktop=desktop)
    page.get_by_role("button", name="Pair this device").wait_for()
    found: dict[str, list[str]] = {"pair": in_both_colours(page)}
    pair(page, hub.link("admin"))
    for place, shows in _screens(page, session):
        page.goto(f"{hub.url}/#/{place}")
        shows.wait_for()
        page.get_by_text("Live").first.wait_for()
        if place.startswith("s/"):
            for card in page.get_by_role("article", name=re.compile("^Tool: (Edit|make)")).all():
                card.get_by_role("button").first.click()
        found[place] = in_both_colours(page)
    assert {place: each for place, each in found.items() if each} == {}


def _screens(page: Page, session: str) -> list[tuple[str, Locator]]:
    """Return every screen, and what is there when it is."""
    waits = page.get_by_role("region", name=re.compile("^Approval"))
    return [
        ("", page.get_by_role("link", name=re.compile("pending")).last),
        (f"s/{session}", page.get_by_text("Waiting for your answer")),
        ("inbox", waits),
        ("agents", page.get_by_role("heading", name="Agents")),
        ("new", page.get_by_label("First prompt")),
        ("devices", page.get_by_role("button", name="Pair a device")),
        ("machines", page.get_by_role("button", name="Add a machine")),
        ("elsewhere", page.get_by_role("heading", name="Started elsewhere")),
        ("settings", page.get_by_role("button", name="Sign out this device")),
    ]


def test_a_session_can_be_operated_with_the_keyboard_alone(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub, _ = _busy(start_hub, folder)
    page = open_device(hub, desktop=True)
    waits = page.get_by_role("main").get_by_role("region", name="Needs you")
    expect(waits.get_by_role("region", name=re.compile("^Approval"))).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    row = page.get_by_role("link", name=re.compile("harbour")).first
    row.focus()
    page.keyboard.press("Enter")
    page.get_by_role("log", name="Transcript").wait_for()
    reject = page.get_by_role("button", name="Reject", exact=True)
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


def test_no_screen_is_wider_than_a_small_phone(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub, session = _busy(start_hub, folder)
    page = open_device(hub)
    page.set_viewport_size({"width": 360, "height": 640})
    for place, shows in _screens(page, session):
        page.goto(f"{hub.url}/#/{place}")
        shows.wait_for()
        wider = page.evaluate("() => document.documentElement.scrollWidth > innerWidth")
        assert not wider, place

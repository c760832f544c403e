"""Reading: diffs, code, earlier entries, pins and unread marks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Route, expect

from tests.page.browsing import OpenDevice, StartHub
from tests.page.hubs import playing
from tests.page.test_accessibility import violations

OLD = 'def wait(url):\n    """How long."""\n    return fetch(url, 10)\n'
NEW = 'def wait(url):\n    """How long."""\n    return fetch(url, 20)\n'
CODE = "```python\ndef <img src=x onerror=alert(1)>(): 'a\u202eb'\n```"


def _inner(call: str, status: str) -> dict[str, Any]:
    """Return a step of the sub-agent that the call t0 began."""
    facts = {"toolCallId": call, "title": f"Look at {call}", "kind": "read", "status": status}
    parent = {"_meta": {"claudeCode": {"parentToolUseId": "t0"}}}
    return {"sessionUpdate": "tool_call", **facts, **parent}


def test_earlier_entries_are_loaded_when_the_newest_do_not_fill_the_screen(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    steps = [{"update": _inner(f"i{number}", "completed")} for number in range(56)]
    begun = {"tool": "t0", "title": "Explore", "kind": "think"}
    hub = start_hub(deep=playing({"say": "The very first."}, begun, *steps, {"finish": "t0"}))
    session = hub.session("deep", folder)
    for key in ("one", "two"):
        hub.prompt(session, f"Prompt {key}", key)
    asked = f"/api/sessions/{session}/prompts"
    hub.until(asked, lambda answer: {each["state"] for each in answer["prompts"]} == {"done"})
    page = open_device(hub, place=f"/#/s/{session}")
    log = page.get_by_role("log", name="Transcript")
    expect(log.get_by_text("Prompt two")).to_be_visible()
    expect(log.get_by_text("Prompt one")).to_be_attached()


def test_a_diff_is_highlighted_with_marked_words_and_opens_side_by_side(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    change = {"path": "{cwd}/client.py", "old": OLD, "new": NEW}
    steps = (
        {"say": CODE},
        {"tool": "t0", "title": "Explore", "kind": "think"},
        {"update": _inner("i1", "completed")},
        {"update": _inner("i2", "failed")},
        {"finish": "t0"},
        {"tool": "t1", "title": "Edit client.py", "kind": "edit"},
        {"finish": "t1", "diff": change},
    )
    hub = start_hub(editing=playing(*steps))
    session = hub.session("editing", folder)
    hub.prompt(session, "go")
    page = open_device(hub, place=f"/#/s/{session}", desktop=True)
    code = page.locator(".code code")
    expect(code.locator(".t-k")).to_have_text("def")
    expect(code.locator(".unseen")).to_have_text("U+202E")
    expect(code.locator("img")).to_have_count(0)

    steps_of = page.get_by_label("Tool: Explore").get_by_label("Sub-agent steps")
    expect(steps_of.get_by_role("button")).to_contain_text("2 steps · read 2 files1 failed")
    expect(page.get_by_label("Sub-agent tool")).to_have_count(0)
    steps_of.get_by_role("button").click()
    expect(steps_of.get_by_label("Sub-agent tool")).to_have_count(2)

    page.get_by_label("Tool: Edit client.py").get_by_role("button").first.click()
    change_of = page.get_by_role("group", name=re.compile("Diff of .*client.py"))
    expect(change_of.locator(".t-w")).to_have_text(["10", "20"])
    expect(change_of.locator(".t-s").first).to_have_text('"""How long."""')
    page.get_by_role("button", name="Open diff").click()
    opened = page.get_by_role("dialog", name="Diff of client.py")
    row = opened.get_by_role("row").last
    expect(row).to_contain_text(re.compile("removed: .*10.*added: .*20"))
    assert violations(page) == []
    opened.get_by_role("radio", name="Unified").click()
    expect(opened.get_by_role("row")).to_have_count(4)
    page.keyboard.press("Escape")
    expect(opened).to_have_count(0)


def test_sessions_are_pinned_marked_unread_and_navigated_by_keys(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(quick=playing({"title": "{prompt}"}, {"say": "Done that."}))
    one, two = (hub.session("quick", folder) for _ in range(2))
    for session, title in ((one, "First"), (two, "Second")):
        hub.prompt(session, title)
    page = open_device(hub, place=f"/#/s/{one}", desktop=True)
    sessions = page.get_by_role("complementary", name="Sessions")
    expect(sessions.get_by_role("link", name=re.compile("Second"))).to_be_visible()
    expect(page.get_by_text("Done that.")).to_be_visible()
    hub.prompt(two, "Second", "again")
    expect(sessions.get_by_role("link", name=re.compile("unread: Second"))).to_be_visible()
    page.reload()
    expect(sessions.get_by_role("link", name=re.compile("unread: Second"))).to_be_visible()

    page.get_by_role("button", name="Session details").click()
    page.get_by_role("button", name="Pin", exact=True).click()
    page.keyboard.press("Escape")
    expect(sessions.get_by_role("region", name=re.compile("Pinned"))).to_contain_text("First")
    page.keyboard.press("?")
    help_sheet = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(help_sheet).to_contain_text("Next session")
    assert violations(page) == []
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", level=1)).to_have_text("First")
    page.keyboard.press("j")
    expect(page.get_by_role("heading", level=1)).to_have_text("Second")
    page.keyboard.press("p")
    page.keyboard.type("nk?")
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("nk?")
    expect(sessions.get_by_role("link", name=re.compile("unread"))).to_have_count(0)


def test_a_turn_that_ends_while_the_list_is_read_is_unread(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(quick=playing({"title": "{prompt}"}, {"say": "Done that."}))
    hub.prompt(hub.session("quick", folder), "First")
    page = open_device(hub, place="/#/agents", desktop=True)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.goto("about:blank")
    held: list[Route] = []
    page.route("**/api/sessions?*", lambda route: held.append(route))  # noqa: PLW0108 - it is wrapped
    hub.prompt(new := hub.session("quick", folder), "Second")
    page.goto(hub.url + "/#/")
    main = page.get_by_role("main")
    expect(main.get_by_role("link", name=re.compile("Second"))).to_be_visible()
    hub.prompt(new, "Second", "again")
    for route in held:
        route.continue_()
    expect(main.get_by_role("link", name=re.compile("unread: Second"))).to_be_visible()

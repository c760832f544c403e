"""What is neither a message nor a tool call is on the page: live, and after a reload."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.page.browsing import OpenDevice, StartHub
from tests.page.hubs import playing

Json = dict[str, Any]
SUMMARY = [{"type": "text", "text": "All that was said."}]
UPDATES: tuple[Json, ...] = (
    {"sessionUpdate": "notice", "severity": "error", "title": "Mind this", "description": "Now."},
    {"sessionUpdate": "compaction_update", "compactionId": "k", "status": "in_progress"},
    {
        "sessionUpdate": "compaction_update",
        "compactionId": "k",
        "status": "completed",
        "summary": SUMMARY,
    },
    {
        "sessionUpdate": "subagent_update",
        "sessionId": "child",
        "title": "Scout",
        "state": {"state": "running"},
    },
    {
        "sessionUpdate": "session_message",
        "messageId": "m",
        "recipientSessionId": "child",
        "content": [{"type": "text", "text": "Look around."}],
    },
    {"sessionUpdate": "_vendor/odd", "percent": 40},
    {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "title": "Fetch it",
        "name": "WebFetch",
        "kind": "fetch",
        "status": "cancelled",
    },
    {
        "sessionUpdate": "agent_message_chunk",
        "messageId": "odd",
        "content": {"type": "hologram", "depth": 7},
    },
)


def check_notes(page: Page) -> None:
    log = page.get_by_role("log", name="Transcript")
    expect(log.get_by_role("note").filter(has_text="Mind this")).to_contain_text("Now.")
    expect(log.get_by_text("Sub-agent Scout: running")).to_be_visible()
    expect(log.get_by_text("Compacting the context")).to_have_count(0)
    log.get_by_role("button", name="Context compacted").click()
    expect(log.get_by_text("All that was said.", exact=True)).to_be_visible()
    log.get_by_role("button", name="Message to child").click()
    expect(log.get_by_text("Look around.", exact=True)).to_be_visible()
    log.get_by_role("button", name="_vendor/odd").click()
    expect(log.get_by_text('"percent"')).to_be_visible()
    card = log.get_by_role("article", name="Tool: Fetch it")
    expect(card).to_contain_text("cancelled")
    expect(log.get_by_text("Content of type hologram")).to_be_visible()
    card.get_by_role("button").first.click()
    expect(card.get_by_text("WebFetch")).to_be_visible()


def test_notes_are_shown_live_and_after_a_reload(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    steps = [{"update": update} for update in UPDATES]
    hub = start_hub(noting=playing({"say": "Begun."}, *steps, {"say": "Over."}))
    session = hub.session("noting", folder)
    page = open_device(hub)
    page.goto(f"{hub.url}/#/s/{session}")
    page.get_by_label("Prompt", exact=True).fill("go")
    page.get_by_role("button", name=re.compile("^Send")).click()
    expect(page.get_by_text("Over.")).to_be_visible()
    check_notes(page)
    page.reload()
    expect(page.get_by_text("Over.")).to_be_visible()
    check_notes(page)


def test_a_paused_call_is_shown_as_paused(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    paused = {"title": "Wait for it", "kind": "other", "status": "paused"}
    update = {"sessionUpdate": "tool_call", "toolCallId": "p", **paused}
    hub = start_hub(pausing=playing({"update": update}, {"stall": True}))
    page = open_device(hub)
    page.goto(f"{hub.url}/#/s/{hub.session('pausing', folder)}")
    page.get_by_label("Prompt", exact=True).fill("go")
    page.get_by_role("button", name=re.compile("^Send")).click()
    card = page.get_by_role("article", name="Tool: Wait for it")
    expect(card).to_contain_text("paused")
    page.reload()
    expect(card).to_contain_text("paused")

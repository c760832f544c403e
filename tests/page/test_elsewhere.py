"""Sessions that were started elsewhere: adopted by a button, shown with a badge, continued."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from playwright.sync_api import Page, expect

from quarterdeck.testing.codex_daemon import CodexDaemonScript
from quarterdeck.testing.foreign import ClaudeProgram
from tests.page.browsing import OpenDevice, StartHub
from tests.page.hubs import playing
from tests.page.test_accessibility import in_both_colours


@pytest.fixture(autouse=True)
def _programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs have their sessions in folders of the test."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))


def _program(page: Page, title: str) -> Any:
    return page.get_by_role("region", name=title)


def test_a_session_of_claude_code_is_adopted_and_continued_when_its_terminal_is_closed(
    start_hub: StartHub, open_device: OpenDevice, tmp_path: Path
) -> None:
    claude = ClaudeProgram(tmp_path / "claude", cwd=str(tmp_path))
    claude.prompt("Look at the harbour")
    claude.answer("It is calm.")
    hub = start_hub(claude=playing({"say": "Back again."}))
    page = open_device(hub, "admin", place="/#/elsewhere")
    program = _program(page, "Claude Code")
    expect(program).to_contain_text("Not followed")
    found = in_both_colours(page)
    program.get_by_role("switch", name=re.compile("^Answer its requests here")).uncheck()
    program.get_by_role("button", name="Follow Claude Code").click()
    expect(program).to_contain_text("requests answered in the program")
    program.get_by_text("on the hub's computer").click()
    program.get_by_role("button", name="Adopt").click()
    expect(program.get_by_role("link", name="Open")).to_be_visible()
    found += in_both_colours(page)
    program.get_by_role("link", name="Open").click()
    expect(page.get_by_text("It is calm.")).to_be_visible()
    expect(page.locator(".top-facts .foreign")).to_have_text("started in Claude Code")
    running = claude.run("idle")
    expect(page.get_by_text("Open in Claude Code.")).to_contain_text("Answer its requests there.")
    expect(page.get_by_label("Prompt", exact=True)).to_have_count(0)
    hub.call("POST", "/api/adoption/claude", {"hook": True})
    claude.run("busy")
    expect(page.get_by_text("You can answer its requests here.")).to_be_visible()
    expect(page.locator(".working-line")).to_contain_text("Working")
    found += in_both_colours(page)
    running.unlink()
    page.get_by_role("button", name="Continue here").click()
    page.get_by_label("Prompt", exact=True).fill("And now?")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("Back again.")).to_be_visible()
    page.goto(f"{hub.url}/#/")
    expect(page.locator(".session-facts .foreign")).to_have_text("started in Claude Code")
    assert found == []


def test_an_admin_device_imports_all_past_sessions_and_releases_a_program(
    start_hub: StartHub, open_device: OpenDevice, tmp_path: Path
) -> None:
    for number in range(1, 4):
        claude = ClaudeProgram(tmp_path / "claude", cwd=str(tmp_path), number=number)
        claude.prompt(f"Task {number}")
        claude.answer("Done.")
    hub = start_hub()
    other = open_device(hub, "approve", place="/#/elsewhere")
    expect(other.get_by_text("Only an admin device can adopt sessions.")).to_be_visible()
    other.close()
    page = open_device(hub, "admin", place="/#/elsewhere")
    program = _program(page, "Claude Code")
    program.get_by_role("button", name="Follow Claude Code").click()
    expect(program).to_contain_text("requests answered here")
    program.get_by_role("button", name="Import all past sessions").click()
    expect(program).to_contain_text("Following 3 sessions")
    # A session is followed before it is recorded, and releasing the program ends the import.
    program.get_by_text("on the hub's computer").click()
    expect(program.get_by_role("link", name="Open")).to_have_count(3)
    program.get_by_role("button", name="Stop following").click()
    expect(program).to_contain_text("Not followed")
    page.get_by_role("button", name="Back").click()
    expect(page.locator(".session-row")).to_have_count(3)


def test_a_turn_of_codex_is_steered_and_stopped_from_the_page(
    start_hub: StartHub, open_device: OpenDevice, tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    codex = CodexDaemonScript(tmp_path / "codex", cwd=str(tmp_path / "project"))
    codex.program.prompt("earlier")
    codex.program.answer("said earlier")
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(codex.running()):
        hub = start_hub()
        hub.call("POST", "/api/adoption/codex", {"past": True})
        portal.call(codex.wait_subscribed)
        page = open_device(hub, place=f"/#/s/{codex.session_id}")
        expect(page.get_by_text("Open in Codex. Prompts are sent there.")).to_be_visible()
        portal.call(codex.begin_turn, "Tidy up")
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        page.get_by_label("Prompt", exact=True).fill("Only the tests")
        page.get_by_role("button", name="Steer").click()
        expect(page.get_by_role("log").get_by_text("Only the tests")).to_be_visible()
        assert "turn/steer" in [each.get("method") for each in codex.received]
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("button", name="Stop")).to_have_count(0)
        assert "turn/interrupt" in [each.get("method") for each in codex.received]
        page.close()
        hub.stop()


def test_a_session_that_an_agent_keeps_is_opened_here(
    start_hub: StartHub, open_device: OpenDevice, tmp_path: Path
) -> None:
    listed = [{"sessionId": "theirs", "cwd": str(tmp_path), "title": "An old one"}]
    can = {"loadSession": True, "sessionCapabilities": {"list": {}}}
    lists = playing(
        {"say": "Hello."},
        capabilities=can,
        methods={
            "session/list": [{"result": {"sessions": listed}}],
            "session/load": [{"result": {}}],
        },
    )
    hub = start_hub(mine=lists, other=playing({"say": "no"}))
    page = open_device(hub, "admin", place="/#/elsewhere")
    page.get_by_role("button", name="List sessions of other").click()
    expect(page.get_by_text("Does not list its sessions")).to_be_visible()
    page.get_by_role("button", name="List sessions of mine").click()
    page.get_by_role("button", name="Open here An old one").click()
    expect(page).to_have_url(f"{hub.url}/#/s/theirs")
    expect(page.get_by_label("Prompt", exact=True)).to_be_visible()

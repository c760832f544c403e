"""A second machine on the page: a real runner that has joined the hub, and goes away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.cli.kit import Console
from tests.page.browsing import OpenDevice, StartHub
from tests.page.hubs import HubProcess, playing
from tests.page.test_accessibility import in_both_colours

ASK = {"title": "Delete it", "kind": "execute", "input": {"command": "rm -rf build"}}


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Console]:
    """Return a machine of its own, with an agent that asks."""
    folder = tmp_path / "laptop"
    folder.mkdir()
    program, *words = playing({"say": "On my way."}, {"ask": "t1", **ASK}, {"say": "Done."})
    made = Console(folder, f"[agents.asker]\ncommand = {program!r}\nargs = {words!r}\n")
    yield made
    made.end_runner()


def test_a_machine_joins_by_one_line_that_the_page_shows(
    start_hub: StartHub, open_device: OpenDevice, laptop: Console
) -> None:
    hub = start_hub()
    page = open_device(hub, place="/#/machines")
    expect(page.get_by_text("No other machines")).to_be_visible()
    found = in_both_colours(page)
    page.get_by_role("button", name="Add a machine").click()
    line = page.get_by_role("dialog").locator("code").first.text_content() or ""
    joined = laptop.run(*line.split()[1:], "--name", "laptop")
    assert joined.returncode == 0, joined.stderr
    expect(page.get_by_text("laptop has joined")).to_be_visible()
    found += in_both_colours(page)
    page.get_by_role("button", name="Done").click()
    page.get_by_role("button", name=re.compile("^laptop connected")).click()
    page.get_by_label("Name").fill("old laptop")
    page.get_by_role("button", name="Rename").click()
    row = page.get_by_role("button", name=re.compile("^old laptop connected"))
    expect(row).to_be_visible()
    found += in_both_colours(page)
    row.click()
    page.get_by_role("button", name="Remove", exact=True).click()
    page.get_by_role("button", name="Tap again to remove").click()
    expect(page.get_by_text("No other machines")).to_be_visible()
    assert found == []


def _join(hub: HubProcess, laptop: Console) -> None:
    line = hub.call("POST", "/api/machines/codes", {})["command"]
    joined = laptop.run(*line.split()[1:], "--name", "laptop")
    assert joined.returncode == 0, joined.stderr


def _start_session(page: Page, laptop: Console) -> None:
    page.get_by_role("radio", name="laptop").check()
    page.get_by_role("radio", name="asker").check()
    page.get_by_role("button", name="Browse").click()
    expect(page.get_by_role("dialog").locator(".path")).to_have_text(str(laptop.folder))
    page.get_by_role("button", name="work").click()
    page.get_by_role("button", name="Use work").click()
    page.get_by_label("First prompt").fill("Tidy up")
    page.get_by_role("button", name="Start and send").click()


def test_a_session_of_a_machine_that_is_away_is_read_and_what_is_sent_to_it_waits(
    start_hub: StartHub, open_device: OpenDevice, laptop: Console
) -> None:
    hub = start_hub()
    _join(hub, laptop)
    page = open_device(hub, place="/#/new")
    _start_session(page, laptop)
    expect(page.get_by_text("On my way.")).to_be_visible()
    expect(page.locator(".top-facts .machine")).to_have_text("laptop")
    laptop.end_runner()
    expect(page.get_by_text("laptop has been away since")).to_be_visible()
    expect(page.get_by_text("On my way.")).to_be_visible()
    expect(page.get_by_text("laptop is away. Your prompt will be sent")).to_be_visible()
    page.get_by_label("Prompt", exact=True).fill("And the rest")
    page.get_by_role("button", name="Send", exact=True).click()
    queue = page.get_by_role("list", name="Prompt queue")
    expect(queue.get_by_text("Will be sent if laptop reconnects by")).to_be_visible()
    found = in_both_colours(page)
    card = page.get_by_role("region", name=re.compile("^Approval"))
    card.get_by_role("button", name="Reject", exact=True).click()
    given = card.get_by_role("status").filter(has_text="Reject · Will be sent when laptop")
    expect(given).to_be_visible()
    page.reload()
    expect(given).to_be_visible()
    found += in_both_colours(page)
    page.goto(f"{hub.url}/#/")
    expect(page.locator(".session-facts .machine")).to_contain_text("laptop · away")
    found += in_both_colours(page)
    page.goto(f"{hub.url}/#/new")
    expect(page.get_by_role("radio", name="laptop")).to_be_disabled()
    found += in_both_colours(page)
    assert laptop.run("join").returncode == 0  # starts the runner
    expect(page.get_by_role("radio", name="laptop")).to_be_enabled()
    page.goto(f"{hub.url}/#/")
    page.locator(".session-row").first.click()
    expect(queue).to_be_hidden()
    expect(page.get_by_text("laptop is away")).to_be_hidden()
    assert found == []

"""Agents on the page: installed with a button, and signed in to in a simple terminal."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.hub.api.test_installs import registry
from tests.hub.api.test_sign_ins import CODE, method
from tests.page.browsing import OpenDevice, StartHub


def test_an_agent_is_installed_and_signed_in_to(
    start_hub: StartHub, open_device: OpenDevice, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    registry(tmp_path, initialize={"authMethods": [method(marker)]})
    page = open_device(start_hub(), "admin", place="/#/agents")
    page.get_by_text("Not installed").click()
    page.get_by_role("button", name="Install mine").click()
    page.get_by_role("button", name="Sign in to mine").click()
    sheet = page.get_by_role("dialog")
    sheet.get_by_role("button", name="Sign in").click()
    expect(sheet.get_by_label("Terminal", exact=True)).to_contain_text("Code: ")
    sheet.get_by_label("Terminal input").fill(CODE)
    sheet.get_by_role("button", name="Enter").click()
    expect(sheet.get_by_role("status")).to_have_text("Signed in")
    assert marker.exists()
    expect(sheet).not_to_contain_text(CODE)
    sheet.get_by_role("button", name="Done").click()
    expect(sheet).to_have_count(0)


def test_a_failed_installation_is_shown_and_others_have_no_button(
    start_hub: StartHub, open_device: OpenDevice, tmp_path: Path
) -> None:
    registry(tmp_path, digest="0" * 64)
    hub = start_hub()
    page = open_device(hub, "admin", place="/#/agents")
    page.get_by_text("Not installed").click()
    page.get_by_role("button", name="Install mine").click()
    expect(page.get_by_text("wrong checksum and was not installed")).to_be_visible()
    other = open_device(hub, "prompt", place="/#/agents")
    other.get_by_text("Not installed").click()
    expect(other.get_by_text("quarterdeck agents install mine")).to_be_visible()
    expect(other.get_by_role("button", name="Install mine")).to_have_count(0)

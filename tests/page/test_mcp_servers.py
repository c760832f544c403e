"""MCP servers of a new session: those of the configuration are chosen, others are added."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import expect

from tests.page.browsing import OpenDevice, StartHub
from tests.page.hubs import playing
from tests.page.test_accessibility import in_both_colours


def test_servers_of_a_session_are_chosen_and_added(
    start_hub: StartHub, open_device: OpenDevice, folder: Path, tmp_path: Path
) -> None:
    servers = {
        "docs": {"command": "docs-mcp", "args": ["--all"]},
        "files": {"command": "files-mcp", "projects": [str(folder)]},
        "lacking": {"command": "other-mcp", "env": {"T": "${SURELY_NOT_SET}"}},
        "elsewhere": {"command": "other-mcp", "projects": ["/somewhere/else"]},
    }
    (tmp_path / "mcp.json").write_text(json.dumps(servers), encoding="utf-8")
    hub = start_hub(mine=playing({"say": "Hello."}))
    page = open_device(hub, "admin", place="/#/new")
    page.get_by_role("radio", name="mine").check()
    page.get_by_label("Folder", exact=True).fill(str(folder))
    page.get_by_text("MCP servers (2)").click()
    expect(page.get_by_text("Needs SURELY_NOT_SET")).to_be_visible()
    expect(page.get_by_text("elsewhere")).to_have_count(0)
    page.get_by_label("docs").uncheck()
    page.get_by_role("button", name="Add a server").click()
    sheet = page.get_by_role("dialog")
    sheet.get_by_label("Name").fill("web")
    sheet.get_by_label("Command or URL").fill("npx -y web-mcp --root .")
    sheet.get_by_label("Environment").fill("WEB_TOKEN=correct-horse")
    sheet.get_by_role("button", name="Add").click()
    expect(sheet.get_by_role("alert")).to_contain_text("WEB_TOKEN has a literal value.")
    found = in_both_colours(page)
    sheet.get_by_label("Environment").fill("WEB_PATH=${PATH}")
    sheet.get_by_role("button", name="Add").click()
    expect(page.get_by_text("MCP servers (2)")).to_be_visible()
    expect(page.get_by_role("button", name="Remove web")).to_be_visible()
    found += in_both_colours(page)
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("button", name="Session details").click()
    expect(page.get_by_text("web, files")).to_be_visible()
    (session,) = hub.call("GET", "/api/sessions")["sessions"]
    assert [each["name"] for each in session["mcpServers"]] == ["web", "files"]
    assert session["mcpServers"][0]["args"] == ["-y", "web-mcp", "--root", "."]
    assert found == []

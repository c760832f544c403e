"""Every screen of the page in light and dark, on a phone and on a desktop: `screenshots.py FOLDER`.

A hub of its own is started with agents that play a story, so the pictures are the same each time
but for the clock. Chromium has to be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from playwright.sync_api import Browser, Page, sync_playwright

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from quarterdeck.testing.foreign import ClaudeProgram  # noqa: E402
from tests.page.browsing import FLAGS, MISSING, chromium  # noqa: E402 - found by the path above
from tests.page.hubs import HubProcess, playing  # noqa: E402

SIZES: Final = {"phone": (390, 844), "desktop": (1280, 800)}
THEMES: Final = ("light", "dark")
Json = dict[str, Any]

OUTPUT: Final = (
    "\x1b[1m===== test session starts =====\x1b[0m\ncollected 4 items\n\n"
    "tests/net/test_reconnect.py \x1b[32m...\x1b[0m\x1b[31mF\x1b[0m\n\n"
    "\x1b[31mE   TimeoutError: no reconnect within 1.0 s\x1b[0m\n"
    "\x1b[31m1 failed\x1b[0m, \x1b[32m3 passed\x1b[0m in 2.31s\n"
)
FOUND: Final = """## What happens

The client **waits a random time** before it reconnects, and the test allows one second:

```python
delay = random.uniform(0, 2 ** attempt)
```

With `attempt = 1` that is up to two seconds. Two ways out:

1. pass the clock in, so that the test decides
2. make the limit longer, which hides it

I take the first."""
BEFORE: Final = """class Client:
    def __init__(self, url):
        self.url = url

    async def _wait(self, attempt):
        delay = random.uniform(0, 2 ** attempt)
        await anyio.sleep(delay)
"""
AFTER: Final = BEFORE.replace("(self, url):", "(self, url, *, sleep=anyio.sleep):").replace(
    "await anyio.sleep", "await self._sleep"
)
MODES: Final = {"modes": ["Ask first", "Edit freely"]}


def fixing() -> tuple[str, ...]:
    """Return the agent of the session that is shown in full."""
    path = "{cwd}/src/harbour/client.py"
    steps: list[Json] = [
        {"title": "Fix the flaky reconnect test"},
        {"commands": ["review", "compact", "init"]},
        {"think": "The test and the code under test come first."},
        {"say": "I look at the test and at the client first.\n\n"},
        {"plan": ["[x] Find the cause", "[>] Pass the clock in", "Run it fifty times"]},
        {"tool": "t1", "title": "Read tests/net/test_reconnect.py", "kind": "read"},
        {"finish": "t1", "text": "async def test_reconnect(hub): ..."},
        {"tool": "t2", "title": "pytest tests/net/test_reconnect.py -x", "kind": "execute"},
        {"finish": "t2", "text": OUTPUT, "status": "failed"},
        {"say": FOUND},
        {"tool": "t3", "title": "Edit src/harbour/client.py", "kind": "edit"},
        {"finish": "t3", "diff": {"path": path, "old": BEFORE, "new": AFTER}},
        {"plan": ["[x] Find the cause", "[x] Pass the clock in", "[>] Run it fifty times"]},
        {"usage": 48_200, "size": 200_000, "cost": 0.84},
        {"say": "Now the test decides how long a wait takes. I run it fifty times."},
        {
            "ask": "t4",
            "title": "Run the test fifty times to see whether it still flakes",
            "kind": "execute",
            "input": {"command": "pytest tests/net/test_reconnect.py -x --count=50"},
        },
    ]
    return playing(*steps, sessions={**MODES, "id": "fixing-{n}"})


def upgrading() -> tuple[str, ...]:
    change = {
        "path": "{cwd}/compose.yaml",
        "old": "services:\n  db:\n    image: postgres:17\n",
        "new": "services:\n  db:\n    image: postgres:18\n",
    }
    steps: list[Json] = [
        {"title": "Upgrade to Postgres 18"},
        {"ask": "t1", "title": "Edit compose.yaml", "kind": "edit", "diff": change},
    ]
    return playing(*steps, sessions={"id": "upgrading-{n}"})


def installing() -> tuple[str, ...]:
    command = "curl -fsSL https://get.example.com/pg18.sh | sh"
    steps: list[Json] = [
        {"title": "Set up the build machine"},
        {"ask": "t1", "title": "Install it", "kind": "execute", "input": {"command": command}},
    ]
    return playing(*steps, sessions={"id": "installing-{n}"})


def looking() -> tuple[str, ...]:
    """Return an agent that asks for several harmless things at once."""
    kinds = ("allow_once", "allow_always", "reject_once")
    options = [{"optionId": kind, "name": kind, "kind": kind} for kind in kinds]
    asked = ("git log --oneline -20", "git status --short", "ls docs")
    steps: list[Json] = [{"title": "Write the release notes"}]
    for number, command in enumerate(asked):
        call = {"toolCallId": f"t{number}", "title": "Look", "kind": "execute"}
        params = {
            "sessionId": "{session}",
            "toolCall": {**call, "rawInput": {"command": command}},
            "options": options,
        }
        steps.append({"request": "session/request_permission", "nowait": True, "params": params})
    return playing(*steps, {"stall": True}, sessions={"id": "looking-{n}"})


def writing() -> tuple[str, ...]:
    steps: list[Json] = [
        {"title": "Write the migration guide"},
        {"say": "I begin with the breaking changes."},
        {"stall": True},
    ]
    return playing(*steps, sessions={"id": "writing-{n}"})


def reporting() -> tuple[str, ...]:
    """Return an agent that reports what is neither a message nor a tool call."""
    summary = [{"type": "text", "text": "The importer is done; its tests are next."}]
    deprecated = "`collab` is deprecated. Use `multi_agent` instead."
    updates: list[Json] = [
        {"sessionUpdate": "compaction_update", "compactionId": "k", "status": "completed"},
        {"sessionUpdate": "notice", "severity": "info", "title": "Continuing with a larger model"},
        {"sessionUpdate": "notice", "severity": "warning", "title": deprecated},
        {"sessionUpdate": "subagent_update", "sessionId": "scout-1", "title": "Look for callers"},
        {"sessionUpdate": "_vendor/progress", "percent": 40},
    ]
    updates[0]["summary"] = summary
    updates[2]["description"] = "Set `multi_agent` in config.toml."
    updates[3]["state"] = {"state": "running"}
    link = {"type": "resource_link", "uri": "https://example.com/a", "name": "a", "size": 18_400}
    audio = {"type": "audio", "mimeType": "audio/wav", "data": "UklGRg=="}
    blocks = (audio, {**link, "title": "The format of the ledger"})
    calls: list[Json] = [
        {"toolCallId": "t1", "title": "Wait for the build", "kind": "execute", "status": "paused"},
        {"toolCallId": "t2", "title": "Fetch the archive", "kind": "fetch", "status": "cancelled"},
    ]
    calls = [{"sessionUpdate": "tool_call", "name": "Wait", **call} for call in calls]
    steps: list[Json] = [
        {"title": "Import the old ledger"},
        {"say": "I continue with the importer."},
        *({"update": update} for update in updates),
        *({"update": {"sessionUpdate": "agent_message_chunk", "content": each}} for each in blocks),
        *({"update": call} for call in calls),
    ]
    return playing(*steps, sessions={"id": "reporting-{n}"})


AGENTS: Final = {
    "claude": fixing(),
    "codex": upgrading(),
    "goose": installing(),
    "gemini": writing(),
    "qwen": looking(),
    "kimi": reporting(),
}
PROMPTS: Final = {
    "kimi": ("ledger", "Continue with the importer"),
    "gemini": ("harbour", "Write a migration guide for 2.0"),
    "qwen": ("harbour", "Write the notes of the next release"),
    "goose": ("ledger", "Get the build machine ready"),
    "codex": ("ledger", "Upgrade the database"),
    "claude": (
        "harbour",
        "The reconnect test fails about one run in twenty on CI. Find out why and fix it.",
    ),
}


SERVERS: Final = {
    "docs": {"command": "docs-mcp", "args": ["--root", "."]},
    "search": {"url": "https://search.example/mcp"},
    "issues": {"command": "issues-mcp", "projects": ["/"]},
}


@contextmanager
def busy_hub(place: Path) -> Iterator[tuple[HubProcess, str]]:
    """Start a hub with running sessions; yield it and the id of the session that is shown."""
    home = place / "home"
    home.mkdir(mode=0o700)
    os.environ |= {"CLAUDE_CONFIG_DIR": str(place / "claude"), "CODEX_HOME": str(place / "codex")}
    (place / "mcp.json").write_text(json.dumps(SERVERS), encoding="utf-8")
    hub = HubProcess(home, AGENTS)
    hub.start()
    shown = ""
    try:
        adopt(hub, place)
        # The servers are names alone, and the demo agent would start them.
        body = {"agent": "demo", "cwd": str(_folder(place, "harbour")), "mcp": {"configured": []}}
        demo = hub.call("POST", "/api/sessions", body)["sessionId"]
        hub.prompt(demo, "What can you do?")
        for agent, (folder, text) in PROMPTS.items():
            shown = hub.session(agent, _folder(place, folder))
            hub.prompt(shown, text)
        hub.until("/api/permissions", lambda answer: len(answer["permissions"]) == 6)
        yield hub, shown
    finally:
        hub.stop()


ADOPTED: Final = str(UUID(int=1))
ENDED: Final = str(UUID(int=2))


def adopt(hub: HubProcess, place: Path) -> None:
    """Have sessions that were started in Claude Code: an open one, a closed one, and others."""
    titles = ("Rename the harbour's clock", "Speed up the ledger's import", "Sort the changelog")
    for number, title in enumerate(titles, 1):
        folder = _folder(place, "harbour" if number == 1 else "ledger")
        claude = ClaudeProgram(place / "claude", cwd=str(folder), number=number)
        claude.prompt(title)
        claude.call("git log --oneline -3", "1f790f6 Begin")
        claude.answer("Done: the three places that used the old name are changed, tests pass.")
        if number == 1:
            claude.run("busy")
    hub.call("POST", "/api/adoption/claude", {"hook": True})
    for session_id in (ADOPTED, ENDED):
        hub.call("POST", f"/api/adoption/claude/sessions/{session_id}", {})


def _folder(place: Path, name: str) -> Path:
    folder = place / "src" / name
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("src/harbour/client.py", "src/harbour/clock.py", "README.md"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).touch()
    return folder


def take_all(browser: Browser, hub: HubProcess, shown: str, folder: Path) -> None:
    for size, (width, height) in SIZES.items():
        for theme in THEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=theme,
                is_mobile=size == "phone",
                has_touch=size == "phone",
                device_scale_factor=2,
                reduced_motion="reduce",
            )
            page = context.new_page()
            for name in _places(page, hub, shown):
                page.wait_for_timeout(400)
                page.screenshot(path=folder / f"{name}-{size}-{theme}.png")
            context.close()


def _places(page: Page, hub: HubProcess, shown: str) -> Iterator[str]:
    """Go from screen to screen; yield the name of each when it is ready."""
    page.goto(hub.link("admin"))
    page.get_by_label("Device name").fill("My phone")
    yield "pair"
    page.get_by_role("button", name="Pair this device").click()
    page.get_by_text("Needs you").first.wait_for()
    yield "sessions"
    page.goto(f"{hub.url}/#/s/{shown}")
    page.get_by_role("button", name="Allow once").wait_for()
    yield "approval"
    page.get_by_role("log").evaluate("log => log.scrollTo(0, 0)")
    yield "session"
    page.get_by_label("Tool: pytest").get_by_role("button").first.click()
    page.get_by_label("Tool: Edit").get_by_role("button").first.click()
    page.get_by_label("Tool: pytest").scroll_into_view_if_needed()
    yield "tools"
    yield from _details(page, hub, shown)
    page.goto(f"{hub.url}/#/s/reporting-1")
    page.get_by_text("Context compacted").click()
    yield "notes"
    yield from _elsewhere(page, hub)
    yield from _servers(page, hub)
    for place in ("inbox", "agents", "new", "devices", "machines", "settings"):
        page.goto(f"{hub.url}/#/{place}")
        page.get_by_role("heading", level=1).first.wait_for(state="attached")
        yield place
    page.goto(f"{hub.url}/#/devices")
    page.get_by_role("button", name="Pair a device").click()
    page.get_by_role("button", name="Show code").click()
    # Only this computer reaches the hub, so there is no code to scan.
    page.get_by_role("dialog").get_by_text("Single use").wait_for()
    yield "code"
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()
    yield "keys"


def _elsewhere(page: Page, hub: HubProcess) -> Iterator[str]:
    """Show sessions that were started in another program."""
    page.goto(f"{hub.url}/#/s/{ADOPTED}")
    page.get_by_text("Open in Claude Code.").wait_for()
    yield "adopted"
    page.goto(f"{hub.url}/#/s/{ENDED}")
    page.get_by_role("button", name="Continue here").wait_for()
    yield "continue"
    page.goto(f"{hub.url}/#/elsewhere")
    page.get_by_text("on the hub's computer").first.click()
    page.get_by_role("link", name="Open", exact=True).first.wait_for()
    yield "elsewhere"


def _servers(page: Page, hub: HubProcess) -> Iterator[str]:
    """Show the MCP servers of a new session, and adding one."""
    page.goto(f"{hub.url}/#/new")
    page.get_by_text("MCP servers (").click()
    page.get_by_text("docs-mcp").scroll_into_view_if_needed()
    yield "mcp"
    page.get_by_role("button", name="Add a server").click()
    page.get_by_label("Name", exact=True).fill("web")
    page.get_by_label("Command or URL").fill("npx -y web-mcp")
    page.get_by_label("Environment").fill("WEB_TOKEN=abc")
    page.get_by_role("button", name="Add", exact=True).click()
    yield "mcp-add"
    page.get_by_role("button", name="Close").click()


def _details(page: Page, hub: HubProcess, shown: str) -> Iterator[str]:
    """Open what lies within the session that is shown."""
    page.get_by_role("log").evaluate("log => log.scrollTo(0, 0)")  # distant rows are not drawn
    page.get_by_role("button", name="Open diff").first.click()
    page.get_by_role("dialog").wait_for()
    yield "change"
    page.keyboard.press("Escape")
    page.get_by_role("log").evaluate("log => log.scrollTo(0, log.scrollHeight)")
    page.get_by_role("button", name="Reject with feedback").click()
    yield "reason"
    page.goto(f"{hub.url}/#/")
    page.goto(f"{hub.url}/#/s/{shown}")
    page.get_by_label("Prompt", exact=True).press_sequentially("Compare it with @cl")
    page.get_by_role("listbox", name="Files").wait_for()
    yield "mention"
    page.get_by_label("Prompt", exact=True).fill("")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    program = chromium()
    if program is None:
        print(f"screenshots: {MISSING}", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="quarterdeck-") as place,
        busy_hub(Path(place)) as (hub, shown),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        take_all(browser, hub, shown, folder)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

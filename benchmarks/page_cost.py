"""Measure the page of a hub in Chromium, and print the figures as JSON.

The browser renders in software here, as on a build server; a phone has a GPU. "Slow" is a CPU
four times slower with a network of 12 Mbit/s and 60 ms.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.page.browsing import FLAGS, MISSING, chromium, pair  # noqa: E402 - by the path above
from tests.page.hubs import HubProcess, playing  # noqa: E402

PAGE: Final = ROOT / "src/quarterdeck/server/page"
PATIENCE_MS: Final = 120_000
CHUNKS: Final = 5000
SLOW_NETWORK: Final = {
    "offline": False,
    "latency": 60,
    "downloadThroughput": 1_500_000,
    "uploadThroughput": 500_000,
}
WATCH_FRAMES: Final = """() => {
    window.frames_ = []
    let last = performance.now()
    const next = now => { window.frames_.push(now - last); last = now; requestAnimationFrame(next) }
    requestAnimationFrame(next)
}"""
SCROLL: Final = """log => new Promise(done => {
    let left = 300
    const step = () => {
        log.scrollBy(0, -60)
        if (--left) requestAnimationFrame(step)
        else done()
    }
    step()
})"""
PAINT: Final = """() => new Promise(done => new PerformanceObserver(list =>
    done(list.getEntriesByName('first-contentful-paint')[0].startTime)
).observe({type: 'paint', buffered: true}))"""


def long_agent() -> tuple[str, ...]:
    """Return an agent whose turn is 100,000 events long."""
    text = "Some **markdown** with `code` and a list:\n\n- one\n- two\n\n" * 3
    tools: list[dict[str, Any]] = []
    for number in range(5):
        call = f"t{number}-{{n}}"
        tools += [
            {"tool": call, "title": f"Step {number} of {{n}}", "kind": "read"},
            {"finish": call, "text": "ok\n" * 5},
        ]
    turn = [{"think": "I look."}, {"say": text, "pieces": 60}, *tools]
    return playing({"repeat": 1410, "steps": turn}, sessions={"id": "long-{n}"})


def talking_agent() -> tuple[str, ...]:
    """Return an agent that says 500 pieces a second."""
    few = {"say": "word and **more** `code`\n\n" * 2, "pieces": 5}
    steps = {"repeat": CHUNKS // 5, "steps": [few, {"pause": 0.01}]}
    return playing(steps, pace=1, sessions={"id": "talking-{n}"})


def compressed_kilobytes() -> float:
    files = [path for path in PAGE.rglob("*") if path.suffix in (".js", ".css", ".html")]
    return round(sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) / 1000, 1)


@contextmanager
def measured_hub() -> Iterator[tuple[HubProcess, str]]:
    with tempfile.TemporaryDirectory(prefix="quarterdeck-") as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        hub = HubProcess(home, {"long": long_agent(), "talking": talking_agent()})
        hub.start()
        try:
            session = hub.session("long", Path(folder))
            hub.prompt(session, "go")
            while not _is_done(hub, session):
                time.sleep(0.5)
            yield hub, session
        finally:
            hub.stop()


def _is_done(hub: HubProcess, session: str) -> bool:
    rows = hub.call("GET", "/api/sessions")["sessions"]
    return any(row["sessionId"] == session and row["status"] == "active" for row in rows)


def slow(cdp: CDPSession, *, is_slow: bool) -> None:
    cdp.send("Emulation.setCPUThrottlingRate", {"rate": 4 if is_slow else 1})
    fast = {**SLOW_NETWORK, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    cdp.send("Network.emulateNetworkConditions", SLOW_NETWORK if is_slow else fast)


def frames(page: Page) -> str:
    """Return how many frames took longer than 50 ms, of how many, and the longest."""
    taken = page.evaluate("() => window.frames_.splice(0)")
    late = sum(each > 50 for each in taken)
    return f"{late} of {len(taken)} frames over 50 ms, the longest {max(taken):.0f} ms"


def measure(browser: Browser) -> list[list[Any]]:
    rows: list[list[Any]] = [["files, gzipped", f"{compressed_kilobytes()} KB", "200 KB"]]
    with measured_hub() as (hub, session):
        context = browser.new_context(
            viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        pair(page, hub.link("admin"))
        cdp = context.new_cdp_session(page)
        cdp.send("Network.enable")
        rows += _opening(hub, page, cdp, session)
        rows += _streaming(hub, page, cdp)
        context.close()
    return rows


def _opening(hub: HubProcess, page: Page, cdp: CDPSession, session: str) -> list[list[Any]]:
    events = hub.call("GET", f"/api/sessions/{session}")["seq"]
    slow(cdp, is_slow=True)
    page.reload()
    paint = page.evaluate(PAINT)
    page.locator(".session-row").first.wait_for()
    listed = page.evaluate("() => performance.now()")
    began = time.monotonic()
    page.locator(".session-row").first.tap()
    page.locator(".turn").first.wait_for()
    opened = time.monotonic() - began
    page.evaluate(WATCH_FRAMES)
    page.get_by_role("log").evaluate(SCROLL)
    scrolled = frames(page)
    slow(cdp, is_slow=False)
    return [
        ["first paint, slow", f"{paint:.0f} ms", ""],
        ["the list of sessions is there, slow", f"{listed:.0f} ms", "1 s"],
        [f"a session of {events:,} events opens, slow", f"{opened:.2f} s", "2 s"],
        ["scrolling in it, 3,600 px/s, slow", scrolled, ""],
    ]


def _streaming(hub: HubProcess, page: Page, cdp: CDPSession) -> list[list[Any]]:
    folder = Path(tempfile.gettempdir())
    session = hub.session("talking", folder)
    page.goto(f"{hub.url}/#/s/{session}")
    page.get_by_text("is ready").wait_for()
    frames(page)
    began = time.monotonic()
    hub.prompt(session, "go")
    page.locator(".turn").first.wait_for()
    rate = CHUNKS / (time.monotonic() - began)
    streamed = frames(page)
    cdp.send("HeapProfiler.collectGarbage")
    heap = cdp.send("Runtime.getHeapUsage")["usedSize"] / 1e6
    return [
        [f"{rate:.0f} chunks/s", streamed, "none over 50 ms"],
        ["memory of its scripts after both sessions", f"{heap:.0f} MB", "150 MB"],
    ]


def main() -> int:
    program = chromium()
    if program is None:
        print(f"page_cost: {MISSING}", file=sys.stderr)
        return 1
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        print(json.dumps({"rows": measure(browser)}))
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

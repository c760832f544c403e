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

from page_frames import Watch
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.page.browsing import FLAGS, MISSING, chromium, pair  # noqa: E402 - by the path above
from tests.page.hubs import HubProcess, playing  # noqa: E402

PAGE: Final = ROOT / "src/quarterdeck/hub/page"
PATIENCE_MS: Final = 300_000
ROUNDS: Final = 400
PIECES: Final = 10
SLOW_NETWORK: Final = {
    "offline": False,
    "latency": 60,
    "downloadThroughput": 1_500_000,
    "uploadThroughput": 500_000,
}
STREAMS: Final = {
    "prose": ("Here:\n\n", "word and **more** `code`\n\n" * 2),
    "code": ("```py\n", "x_{n} = some(words, and, more)  # line\n" * 5),
    "a list": ("Here:\n\n", "- point {n} with **bold** text\n"),
    "a table": ("| a | b | c |\n| - | - | - |\n", "| {n} | some words | `code` |\n"),
}
# A fling is about this fast at its beginning; through the whole session, faster than people read.
FLING_PIXELS: Final = 60
HURRY_PIXELS: Final = 400
SCROLL: Final = """(log, [pixels, most]) => new Promise(done => {
    let left = most
    const step = () => {
        log.scrollBy(0, -pixels)
        const isFirst = log.scrollTop === 0 && log.querySelector('.older') === null
        if (--left > 0 && !isFirst) requestAnimationFrame(step)
        else done(isFirst)
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


def talking_agent(number: int, first: str, text: str) -> tuple[str, ...]:
    """Return an agent that says some 550 pieces a second, all in one message."""
    some = [{"say": text, "pieces": PIECES}, {"pause": 0.016}]
    steps = ({"say": first}, {"repeat": ROUNDS, "steps": some})
    return playing(*steps, pace=1, sessions={"id": f"talking-{number}-{{n}}"})


def compressed_kilobytes() -> float:
    files = [path for path in PAGE.rglob("*") if path.suffix in (".js", ".css", ".html")]
    return round(sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) / 1000, 1)


@contextmanager
def measured_hub() -> Iterator[tuple[HubProcess, str]]:
    """Start a hub whose first session is long, and which has not looked at it since its start."""
    agents = {"long": long_agent()}
    for number, (name, (first, text)) in enumerate(STREAMS.items()):
        agents[name.removeprefix("a ")] = talking_agent(number, first, text)
    with tempfile.TemporaryDirectory(prefix="quarterdeck-") as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        hub = HubProcess(home, agents)
        hub.start()
        try:
            session = hub.session("long", Path(folder))
            hub.prompt(session, "go")
            _await_end(hub, session)
            hub.stop()
            hub.start()
            yield hub, session
        finally:
            hub.stop()


def _await_end(hub: HubProcess, session: str) -> None:
    ends = time.monotonic() + PATIENCE_MS / 1000
    while time.monotonic() < ends:
        prompts = hub.call("GET", f"/api/sessions/{session}/prompts")["prompts"]
        if all(each["state"] not in ("queued", "running") for each in prompts):
            return
        time.sleep(0.2)
    raise TimeoutError(f"{session} does not come to an end; see what its agent said")


def slow(cdp: CDPSession, *, is_slow: bool) -> None:
    cdp.send("Emulation.setCPUThrottlingRate", {"rate": 4 if is_slow else 1})
    fast = {**SLOW_NETWORK, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    cdp.send("Network.emulateNetworkConditions", SLOW_NETWORK if is_slow else fast)


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
        rows += _scrolling(browser, page, cdp)
        for name in STREAMS:
            rows.append(_streaming(hub, browser, page, name))
        context.close()
    return rows


def _opening(hub: HubProcess, page: Page, cdp: CDPSession, session: str) -> list[list[Any]]:
    slow(cdp, is_slow=True)
    page.reload()
    paint = page.evaluate(PAINT)
    page.locator(".session-row").first.wait_for()
    listed = page.evaluate("() => performance.now()")
    first = _opened(page)
    page.goto(f"{hub.url}/#/")
    again = _opened(page)
    events = hub.call("GET", f"/api/sessions/{session}/transcript?limit=1")["seq"]
    return [
        ["first paint, slow", f"{paint:.0f} ms", ""],
        ["the list of sessions is there, slow", f"{listed:.0f} ms", "1 s"],
        [
            f"a session of {events:,} events opens, first look since the hub began, slow",
            first,
            "2 s",
        ],
        ["it opens again, slow", again, "2 s"],
    ]


def _opened(page: Page) -> str:
    """Return how long it takes from a tap on a session to the end of its transcript."""
    page.locator(".session-row").first.wait_for()
    began = time.monotonic()
    page.locator(".session-row").first.tap()
    page.locator(".turn").first.wait_for()
    return f"{time.monotonic() - began:.2f} s"


def _scrolling(browser: Browser, page: Page, cdp: CDPSession) -> list[list[Any]]:
    log = page.get_by_role("log")
    watch = Watch(browser, page)
    log.evaluate(SCROLL, [FLING_PIXELS, 300])
    fling = watch.stop()
    slow(cdp, is_slow=False)
    watch = Watch(browser, page)
    is_first = log.evaluate(SCROLL, [HURRY_PIXELS, 100_000])
    hurry = watch.stop()
    assert is_first, "the beginning of the session was not reached"
    return [
        ["scrolling in it, 3,600 px/s, slow", fling.in_words(), ""],
        ["scrolling to its beginning, 24,000 px/s", hurry.in_words(), ""],
        ["memory of the page's scripts then", f"{_heap(cdp):.0f} MB", "150 MB"],
    ]


def _heap(cdp: CDPSession) -> float:
    cdp.send("HeapProfiler.collectGarbage")
    used: int = cdp.send("Runtime.getHeapUsage")["usedSize"]
    return used / 1e6


def _streaming(hub: HubProcess, browser: Browser, page: Page, name: str) -> list[Any]:
    session = hub.session(name.removeprefix("a "), Path(tempfile.gettempdir()))
    page.goto(f"{hub.url}/#/s/{session}")
    page.get_by_text("is ready").wait_for()
    watch = Watch(browser, page)
    began = time.monotonic()
    hub.prompt(session, "go")
    page.locator(".turn").first.wait_for()
    rate = ROUNDS * PIECES / (time.monotonic() - began)
    seen = watch.stop()
    told = f"{seen.in_words()}; layout shift {seen.jumps:.4f}"
    return [f"{name}, {rate:.0f} chunks/s", told, "500 chunks/s, none over 50 ms"]


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

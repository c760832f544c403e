"""How smoothly a page runs: its frames by the clock, and the tasks of its main thread by CPU time.

The clock also counts what other programs do; the CPU time of a task does not. A
frame is dropped by the page itself if one of its tasks takes that long.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from playwright.sync_api import Browser, Page

WATCH: Final = """() => {
    window.frames_ = []
    window.jumps_ = 0
    const ours = window.frames_
    let last = performance.now()
    const next = () => {
        if (window.frames_ !== ours) return
        const now = performance.now()
        ours.push(now - last)
        last = now
        requestAnimationFrame(next)
    }
    requestAnimationFrame(next)
    window.observer_?.disconnect()
    window.observer_ = new PerformanceObserver(list => {
        for (const entry of list.getEntries()) window.jumps_ += entry.value
    })
    window.observer_.observe({type: 'layout-shift'})
}"""
CATEGORIES: Final = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]
# The first that there is: one may be reported inside the other.
TASKS: Final = ("RunTask", "ThreadControllerImpl::RunTask")


@dataclass(frozen=True, kw_only=True)
class Smoothness:
    frames: Sequence[float]
    tasks: Sequence[float]
    jumps: float

    def in_words(self) -> str:
        """Return the distribution of frames, and what the page itself took."""
        late = sum(each > 50 for each in self.frames)
        slow = sum(each > 50 for each in self.tasks)
        return (
            f"{_part(self.frames, 0.5):.0f} / {_part(self.frames, 0.95):.0f} /"
            f" {_part(self.frames, 0.99):.0f} / {max(self.frames):.0f} ms a frame"
            f" (half, 95 %, 99 %, longest), {late} of {len(self.frames)} over 50 ms;"
            f" own tasks at most {max(self.tasks):.0f} ms, {slow} over 50 ms"
        )


def _part(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


class Watch:
    """Watches a page from its making to `stop`."""

    def __init__(self, browser: Browser, page: Page) -> None:
        self._browser, self._page = browser, page
        page.evaluate(WATCH)
        browser.start_tracing(page=page, categories=CATEGORIES)

    def stop(self) -> Smoothness:
        frames = self._page.evaluate("() => window.frames_")
        events = json.loads(self._browser.stop_tracing())["traceEvents"]
        jumps = self._page.evaluate("() => window.jumps_")
        return Smoothness(frames=frames, tasks=_main_tasks(events), jumps=jumps)


def _main_tasks(events: list[dict[str, Any]]) -> list[float]:
    """Return the CPU milliseconds of each task of the page's main thread."""
    threads = {
        (each["pid"], each["tid"])
        for each in events
        if each["name"] == "thread_name" and each["args"]["name"] == "CrRendererMain"
    }
    ours = [each for each in events if (each.get("pid"), each.get("tid")) in threads]
    name = next(name for name in TASKS if any(each["name"] == name for each in ours))
    return [each.get("tdur", 0) / 1000 for each in ours if each["name"] == name]

"""The browser that tests, screenshots and benchmarks of the page use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Final

from playwright.sync_api import BrowserContext, Page

from tests.page.hubs import HubProcess

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MISSING: Final = "Chromium is needed: install it (Debian: sudo apt-get install chromium)"

# Waits until the storage of the page contains this text.
STORED: Final = """text => new Promise(done => {
    const opening = indexedDB.open('quarterdeck')
    opening.onsuccess = () => {
        const look = () => {
            const names = [...opening.result.objectStoreNames]
            const all = opening.result.transaction(names)
            const asked = names.map(name => all.objectStore(name).getAll())
            all.oncomplete = () => {
                const kept = JSON.stringify(asked.map(each => each.result))
                return kept.includes(text) ? done() : look()
            }
        }
        look()
    }
})"""

StartHub = Callable[..., HubProcess]
OpenDevice = Callable[..., Page]


def chromium() -> str | None:
    """Return the program; None if there is none."""
    named = os.environ.get("QUARTERDECK_CHROMIUM")
    return named or next(filter(None, map(shutil.which, PROGRAMS)), None)


def let_in(context: BrowserContext, hub: HubProcess, scope: str) -> None:
    """Pair a browser as its page would, without loading that."""
    code = hub.call("POST", "/api/pairings", {"scope": scope})["code"]
    given = {"code": code, "name": "A browser"}
    answer = context.request.post(
        f"{hub.url}/api/pair",
        data=given,
        headers={"origin": hub.url, "sec-fetch-site": "same-origin"},
    )
    assert answer.ok, answer.text()


def pair(page: Page, link: str, name: str | None = None) -> None:
    """Let a page in."""
    page.goto(link)
    if name is not None:
        page.get_by_label("Device name").fill(name)
    page.get_by_role("button", name="Pair this device").click()
    page.get_by_role("navigation", name="Main").wait_for()

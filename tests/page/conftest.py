"""Fixtures: the page of a real hub in a real browser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from quarterdeck.hub.page.files import PAGE
from tests.page.browsing import FLAGS, MISSING, OpenDevice, StartHub, chromium, let_in
from tests.page.hubs import PATIENCE, HubProcess

expect.set_options(timeout=PATIENCE * 1000)  # a busy machine is slow

PHONE: Final = {"width": 390, "height": 844}
DESKTOP: Final = {"width": 1280, "height": 800}


def _needs_browser(item: pytest.Item) -> bool:
    return "browser" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here starts a hub; one browser after another is for those that come together."""
    for item in filter(_needs_browser, items):
        item.add_marker("page")
        item.add_marker("slow")
    items.sort(key=lambda item: not _needs_browser(item))


class _Browsers:
    """The browser of tests that follow each other."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._browser: Browser | None = None

    def get(self) -> Browser:
        if self._browser is None:
            program = chromium()
            if program is None:
                pytest.fail(MISSING)
            if not (PAGE / "index.html").is_file():
                pytest.fail("the page is not built; run python3 dev.py setup")
            chromes = self._open.enter_context(sync_playwright()).chromium
            self._browser = chromes.launch(executable_path=program, args=list(FLAGS))
            self._open.callback(self._browser.close)
        return self._browser

    def close(self) -> None:
        self._browser = None
        self._open.close()


_browsers: Final = _Browsers()


@pytest.fixture
def browser() -> Browser:
    return _browsers.get()


# As long as Playwright is there its event loop runs, and other tests have loops of their own.
@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or not _needs_browser(nextitem):
        _browsers.close()


@pytest.fixture
def start_hub(tmp_path: Path) -> Iterator[StartHub]:
    """Start hubs with agents by name and command; the demo is always there."""
    started: list[HubProcess] = []

    def start(push_services: Sequence[str] = (), **agents: Sequence[str]) -> HubProcess:
        home = tmp_path / f"hub{len(started)}"
        home.mkdir(mode=0o700)
        hub = HubProcess(home, agents, push_services)
        hub.start()
        started.append(hub)
        return hub

    yield start
    for hub in started:
        hub.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a project to work in."""
    project = tmp_path / "harbour"
    project.mkdir()
    (project / "README.md").write_text("# Harbour\n")
    return project


@pytest.fixture
def open_device(browser: Browser) -> Iterator[OpenDevice]:
    """Open a browser of its own on a hub, paired if a scope is given; complaints fail the test.

    With a service worker it opens offline, and receives pushes and shared content.
    """
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def opened(
        hub: HubProcess,
        scope: str | None = "admin",
        *,
        place: str = "/#/",
        desktop: bool = False,
        worker: bool = False,
    ) -> Page:
        context = browser.new_context(
            viewport=DESKTOP if desktop else PHONE,  # type: ignore[arg-type]
            has_touch=not desktop,
            is_mobile=not desktop,
            permissions=["clipboard-read", "clipboard-write", "notifications"],
            service_workers="allow" if worker else "block",  # another process, and slow
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE * 1000)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(f"script: {error}"))
        page.on(
            "console",
            lambda said: complaints.append(said.text) if "Content Security" in said.text else None,
        )
        if scope is not None:
            let_in(page, hub, scope)
        page.goto(hub.url + place)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []

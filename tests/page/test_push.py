"""Notifications: switched on in the page, sent by the hub, shown by the service worker.

The browser's own push service is out of reach of tests. A subscription at a service of ours stands
in for it, and what the hub sends there is handed to the service worker by the browser's debugger.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import CDPSession, Page, expect

from tests.hub.push.push_service import Browser, LocalPushService, push_service
from tests.page.browsing import OpenDevice, StartHub
from tests.page.hubs import playing

SUBSCRIBING = """subscription => {
    let current = null
    const made = () => ({
        endpoint: subscription.endpoint,
        toJSON: () => subscription,
        unsubscribe: async () => { current = null; return true },
    })
    PushManager.prototype.subscribe = async () => (current = made())
    PushManager.prototype.getSubscription = async () => current
}"""

# What only the browser itself could do. An event of ours is not trusted: it cannot keep the worker
# awake, and a debugger does that instead.
SHOWN = """async () => {
    for (;;) {
        const shown = await self.registration.getNotifications()
        if (shown.length) return shown.map(({title, body, tag}) => ({title, body, tag}))
        await new Promise(next => setTimeout(next, 20))
    }
}"""
# A page that is left is a visible client for a while longer.
HIDDEN = """async () => {
    while ((await self.clients.matchAll({type: 'window'})).length)
        await new Promise(next => setTimeout(next, 20))
}"""
CLICK = """async () => {
    const [notification] = await self.registration.getNotifications()
    self.dispatchEvent(new NotificationEvent('notificationclick', {notification}))
}"""
LEFT = "async () => (await self.registration.getNotifications()).length"
CHANGE = "() => { self.dispatchEvent(new ExtendableEvent('pushsubscriptionchange')) }"


@pytest.fixture
def service() -> Iterator[LocalPushService]:
    with push_service() as started:
        yield started


class _Worker:
    """Hands pushes to the service worker of a page."""

    def __init__(self, page: Page) -> None:
        self._cdp: CDPSession = page.context.new_cdp_session(page)
        self._origin = ""
        self._registration = ""
        self._cdp.on("ServiceWorker.workerRegistrationUpdated", self._on_registrations)
        self._cdp.send("ServiceWorker.enable")
        there = page.context.service_workers
        self.program = there[0] if there else page.context.wait_for_event("serviceworker")

    def _on_registrations(self, said: dict[str, Any]) -> None:
        for each in said["registrations"]:
            self._registration = each["registrationId"]
            self._origin = each["scopeURL"].rstrip("/")

    def deliver(self, note: Any) -> None:
        self._cdp.send(
            "ServiceWorker.deliverPushMessage",
            {
                "origin": self._origin,
                "registrationId": self._registration,
                "data": json.dumps(note),
            },
        )


def _subscribed(page: Page, service: LocalPushService) -> tuple[Browser, _Worker]:
    browser = Browser()
    page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
    page.evaluate(SUBSCRIBING, browser.subscription(f"{service.origin}/send/1"))
    worker = _Worker(page)
    page.get_by_role("switch", name="Notify me").click()
    expect(page.get_by_role("switch", name="Approvals")).to_be_checked()
    return browser, worker


def test_a_test_notification_is_reported_as_received(
    start_hub: StartHub, open_device: OpenDevice, service: LocalPushService
) -> None:
    hub = start_hub(push_services=[service.origin])
    page = open_device(hub, "approve", place="/#/settings", worker=True)
    browser, worker = _subscribed(page, service)
    page.get_by_role("button", name="Send a test").tap()
    _, note = service.next(browser)
    expect(page.get_by_text("waiting for delivery")).to_be_visible()
    worker.deliver(note)
    expect(page.get_by_text("Received on this device.")).to_be_visible()


SECRET = "ls -la"
APPROVAL = {"ask": "t", "title": "Look", "kind": "execute", "input": {"command": SECRET}}
QUESTION = {
    "request": "elicitation/create",
    "params": {
        "sessionId": "{session}",
        "mode": "form",
        "message": f"May I {SECRET}?",
        "requestedSchema": {"type": "object", "properties": {"why": {"type": "string"}}},
    },
}


@pytest.mark.parametrize(
    ("step", "kind", "card"),
    [(APPROVAL, "permissions", "Approval"), (QUESTION, "elicitations", "Input request")],
    ids=["approval", "question"],
)
def test_a_pending_request_is_pushed_while_the_page_is_hidden_and_a_click_opens_its_card(
    start_hub: StartHub,
    open_device: OpenDevice,
    service: LocalPushService,
    folder: Path,
    step: dict[str, Any],
    kind: str,
    card: str,
) -> None:
    hub = start_hub(push_services=[service.origin], asking=playing(step))
    page = open_device(hub, "approve", place="/#/settings", worker=True)
    browser, worker = _subscribed(page, service)
    away = page.context.new_page()  # keeps the service worker alive
    page.goto("about:blank")
    hub.prompt(hub.session("asking", folder), "go")
    _, note = service.next(browser)
    assert note["kind"] == kind
    assert SECRET not in json.dumps(note), "a push must not contain the request"
    worker.program.evaluate(HIDDEN)
    worker.deliver(note)
    shown = worker.program.evaluate(SHOWN)
    assert shown == [{"title": note["title"], "body": note["body"], "tag": note["tag"]}]
    page.goto(hub.url + "/#/settings")
    page.get_by_role("heading", name="Settings").wait_for()
    worker.program.evaluate(CLICK)
    expect(page.get_by_role("region", name=re.compile(card))).to_be_visible()
    assert page.url == hub.url + note["url"]
    assert worker.program.evaluate(LEFT) == 0
    away.close()


def test_a_subscription_that_the_browser_replaces_keeps_its_kinds(
    start_hub: StartHub, open_device: OpenDevice, service: LocalPushService, folder: Path
) -> None:
    hub = start_hub(push_services=[service.origin], quick=playing({"say": "Done."}))
    page = open_device(hub, "approve", place="/#/settings", worker=True)
    _, worker = _subscribed(page, service)
    with page.expect_response("**/api/push"):
        page.get_by_role("switch", name="Failed turns").click()
    changed = Browser()
    worker.program.evaluate(SUBSCRIBING, changed.subscription(f"{service.origin}/send/2"))
    with page.context.expect_event("response", lambda said: said.request.method == "PUT"):
        worker.program.evaluate(CHANGE)
    hub.prompt(hub.session("quick", folder), "go")
    _, note = service.next(changed)
    assert note["kind"] == "finished"
    page.reload()
    expect(page.get_by_role("switch", name="Notify me")).to_be_visible()


def test_kinds_are_switched_off_one_by_one(
    start_hub: StartHub, open_device: OpenDevice, service: LocalPushService
) -> None:
    hub = start_hub(push_services=[service.origin])
    page = open_device(hub, "approve", place="/#/settings", worker=True)
    _subscribed(page, service)
    finished = page.get_by_role("switch", name="Finished turns")
    with page.expect_response("**/api/push") as answered:
        finished.click()
    assert answered.value.json()["subscription"]["kinds"]["finished"] is False
    expect(finished).not_to_be_checked()
    expect(page.get_by_role("switch", name="Approvals")).to_be_checked()
    page.get_by_role("switch", name="Notify me").click()
    expect(page.get_by_role("switch", name="Approvals")).to_have_count(0)

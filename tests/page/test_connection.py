"""An unreliable network: nothing is lost or applied twice, and the page shows its state."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from playwright.sync_api import expect

from tests.page.browsing import STORED, OpenDevice, StartHub
from tests.page.hubs import HubProcess, playing


def test_a_stream_resumes_exactly_where_it_was_cut(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    words = " ".join(f"w{number}" for number in range(400))
    hub = start_hub(talking=playing({"say": words, "pieces": 400, "pause": 0.01}, pace=1))
    session = hub.session("talking", folder)
    page = open_device(hub, place=f"/#/s/{session}")
    expect(page.get_by_text("is ready")).to_be_visible()
    hub.prompt(session, "go")
    log = page.get_by_role("log", name="Transcript")
    expect(log).to_contain_text("w20 ")
    page.context.set_offline(True)
    expect(page.get_by_text("Offline").first).to_be_visible()
    hub.until(f"/api/sessions/{session}", lambda answer: answer["seq"] > 150)
    page.context.set_offline(False)
    expect(page.get_by_text(re.compile("^Done · "))).to_be_visible()
    said = log.locator(".message.agent").inner_text()
    assert said.split() == words.split()


def test_prompts_written_offline_are_sent_once_and_in_order(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub()
    session = hub.session("demo", folder)
    page = open_device(hub, place=f"/#/s/{session}", desktop=True)
    prompt = page.get_by_label("Prompt", exact=True)
    expect(prompt).to_be_visible()
    page.context.set_offline(True)
    for text in ("one", "two"):
        prompt.fill(text)
        prompt.press("Enter")
    waiting = page.get_by_role("list", name="Prompt queue")
    expect(waiting.get_by_text("Will send when online")).to_have_count(2)
    expect(page.get_by_text(re.compile("2 actions pending")).first).to_be_visible()
    assert hub.call("GET", f"/api/sessions/{session}/prompts")["prompts"] == []
    page.context.set_offline(False)
    expect(page.get_by_text("You said: two")).to_be_visible()
    prompts = hub.call("GET", f"/api/sessions/{session}/prompts")["prompts"]
    assert [each["prompt"][0]["text"] for each in prompts] == ["one", "two"]


def test_a_page_reconnects_after_a_restart_of_the_hub(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub()
    session = hub.session("demo", folder)
    page = open_device(hub, place=f"/#/s/{session}", desktop=True)
    prompt = page.get_by_label("Prompt", exact=True)
    prompt.fill("before")
    prompt.press("Enter")
    expect(page.get_by_text("You said: before")).to_be_visible()
    hub.stop()
    expect(page.get_by_text("Offline").first).to_be_visible()
    prompt.fill("while it was away")
    prompt.press("Enter")
    hub.start()
    expect(page.get_by_text("You said: while it was away")).to_be_visible()
    expect(page.get_by_text("You said: before")).to_have_count(1)


def test_a_page_opened_offline_shows_the_offline_copy_and_sends_prompts_when_online(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub()
    session = hub.session("demo", folder)
    page = open_device(hub, place=f"/#/s/{session}", worker=True)
    page.evaluate("() => navigator.serviceWorker.ready.then(() => null)")
    hub.prompt(session, "before")
    expect(page.get_by_text("You said: before")).to_be_visible()
    page.get_by_role("button", name="Back to sessions").tap()
    page.evaluate(STORED, "You said: before")
    hub.stop()
    page.reload()
    page.get_by_role("region", name="Available offline").get_by_role("link").tap()
    expect(page.get_by_text("You said: before")).to_be_visible()
    expect(page.get_by_text(re.compile("^Offline copy from"))).to_be_visible()
    prompt = page.get_by_label("Prompt", exact=True)
    prompt.fill("while it was away")
    page.get_by_role("button", name="Send").tap()
    expect(page.get_by_text("Will send when online")).to_be_visible()
    hub.start()
    expect(page.get_by_text("You said: while it was away")).to_be_visible()


def _asking(start_hub: StartHub) -> HubProcess:
    ask = {"ask": "c", "title": "Look", "kind": "execute", "input": {"command": "rm -rf dist"}}
    return start_hub(asking=playing(ask), other=playing(ask, sessions={"id": "other"}))


def test_offline_the_inbox_shows_what_was_pending_and_when_also_after_a_cold_start(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = _asking(start_hub)
    page = open_device(hub, place="/#/inbox", worker=True)
    page.evaluate("() => navigator.serviceWorker.ready.then(() => null)")
    for agent in ("asking", "other"):
        hub.prompt(hub.session(agent, folder), "go")
    hub.until("/api/permissions", lambda answer: len(answer["permissions"]) == 2)
    expect(page.locator(".approval")).to_have_count(2)
    page.evaluate(STORED, "rm -rf dist")
    hub.stop()
    sentence = re.compile(r"^Offline\. At .+, 2 requests were pending")
    expect(page.get_by_text(sentence)).to_be_visible()
    expect(page.locator(".approval")).to_have_count(2)
    page.reload()
    expect(page.get_by_text(sentence)).to_be_visible()
    known = page.get_by_role("region", name="Last known requests").get_by_role("listitem")
    expect(known).to_have_count(2)
    expect(known.first).to_contain_text("rm -rf dist")
    expect(page.get_by_text("all caught up")).to_have_count(0)
    expect(page.get_by_role("link", name=re.compile("Inbox.*2 pending"))).to_be_visible()


def test_offline_an_empty_inbox_is_dated_and_an_unknown_one_is_called_that(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    page = open_device(hub, place="/#/inbox", worker=True)
    page.evaluate("() => navigator.serviceWorker.ready.then(() => null)")
    expect(page.get_by_text("You're all caught up")).to_be_visible()
    page.evaluate(STORED, '"count":0')
    hub.stop()
    empty = re.compile(r"^Offline\. At .+, no requests were pending\.")
    expect(page.get_by_text(empty)).to_be_visible()
    expect(page.get_by_text("all caught up")).to_have_count(0)
    page.reload()
    expect(page.get_by_text(empty)).to_be_visible()
    page.evaluate("() => indexedDB.deleteDatabase('quarterdeck') && null")
    page.goto("about:blank")
    page.goto(f"{hub.url}/#/inbox")
    unknown = "Pending requests cannot be loaded while offline."
    expect(page.get_by_text(unknown)).to_be_visible()
    expect(page.get_by_text("all caught up")).to_have_count(0)


def test_every_screen_says_that_agents_are_about_to_restart(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub()
    session = hub.session("demo", folder)
    page = open_device(hub, place=f"/#/s/{session}")
    banner = page.get_by_text("Agents will restart when the running turns end")
    expect(page.get_by_text("is ready")).to_be_visible()
    expect(banner).to_have_count(0)
    hub.send_signal(signal.SIGUSR1)
    expect(banner).to_be_visible()
    for place in ("/#/", "/#/inbox", "/#/agents"):
        page.goto(f"{hub.url}{place}")
        expect(banner).to_have_count(1)
    hub.send_signal(signal.SIGUSR2)
    expect(banner).to_have_count(0)

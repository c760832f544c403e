"""A session from start to end, on a phone and on a desktop."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.page.browsing import STORED, OpenDevice, StartHub
from tests.page.hubs import playing

AT_END = """async log => {
    while (log.scrollHeight - log.scrollTop - log.clientHeight >= 2)
        await new Promise(next => requestAnimationFrame(next))
}"""
# Where paragraphs are, once a wheel's movement is over: when they were the same in twenty pictures.
PLACES = """async log => {
    const look = () => Object.fromEntries([...log.querySelectorAll('p')]
        .map(p => [p.textContent.slice(0, 14), Math.round(p.getBoundingClientRect().top)]))
    let places = look()
    for (let same = 0; same < 20; same += 1) {
        await new Promise(next => requestAnimationFrame(next))
        const now = look()
        if (JSON.stringify(now) !== JSON.stringify(places)) same = 0
        places = now
    }
    return places
}"""


def _allow(page: Page, what: str) -> None:
    card = page.get_by_role("region", name=re.compile("^Approval")).filter(has_text=what)
    button = card.get_by_role("button", name="Allow once")
    expect(button).to_have_attribute("aria-disabled", "false")
    button.tap()
    expect(card).to_have_count(0)


def test_a_whole_demo_session_on_a_phone(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    page = open_device(start_hub())
    page.get_by_role("link", name="New session").tap()
    page.get_by_label("Folder").fill(str(folder))
    page.get_by_label("First prompt").fill("Give me a tour")
    page.get_by_role("button", name="Start and send").tap()

    transcript = page.get_by_role("log", name="Transcript")
    expect(transcript.get_by_text("Give me a tour")).to_be_visible()
    expect(page.get_by_role("region", name="Plan")).to_contain_text("1/3")
    expect(page.get_by_text("keeps watch.")).to_be_visible()
    _allow(page, "Change quarterdeck-demo.txt")
    expect(page.get_by_text("keeps a good watch")).to_be_visible()
    assert (folder / "quarterdeck-demo.txt").read_text() == "Quarterdeck\nkeeps watch.\n"
    _allow(page, "keeps a good watch")
    _allow(page, "wc -l")
    expect(transcript.get_by_text("That was the tour.")).to_be_visible()
    expect(transcript.get_by_text(re.compile("^Done · "))).to_be_visible()
    expect(page.get_by_role("region", name="Plan")).to_contain_text("3/3")

    card = transcript.get_by_role("article", name=re.compile("wc -l"))
    card.get_by_role("button").tap()
    expect(card.get_by_label("Output")).to_contain_text("2 quarterdeck-demo.txt")
    page.get_by_role("button", name="Back to sessions").tap()
    row = page.get_by_role("link", name=re.compile("Give me a tour"))
    expect(row).to_contain_text("idle")


def test_a_hub_without_agents_offers_the_demo_and_names_what_can_be_installed(
    start_hub: StartHub, open_device: OpenDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    page = open_device(start_hub())
    expect(page.get_by_text("No agent is installed there yet.")).to_be_visible()
    page.get_by_role("link", name="Install an agent").tap()
    page.get_by_text(re.compile("Not installed")).tap()
    expect(page.get_by_role("button", name="Install claude", exact=True)).to_be_visible()


def test_the_first_answer_needs_three_taps(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub()
    hub.session("demo", folder)
    page = open_device(hub)
    page.get_by_role("link", name="New session", exact=True).tap()
    page.get_by_label("First prompt").tap()
    page.keyboard.type("hello")
    page.get_by_role("button", name="Start and send").tap()
    expect(page.get_by_text("I am the demo model")).to_be_visible()


def test_enter_before_the_agents_are_listed_starts_the_session_then(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub()
    page = open_device(hub, place="/#/settings", desktop=True)
    held: list[Route] = []
    is_held = True

    def hold(route: Route) -> None:
        if is_held:
            held.append(route)
        else:
            route.continue_()

    page.route("**/api/agents/known", hold)
    page.goto(f"{hub.url}/#/new")
    page.reload()
    page.get_by_label("Folder").fill(str(folder))
    page.get_by_label("First prompt").fill("hello")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Starting…")).to_be_disabled()
    expect(page.get_by_text("No agents are installed")).to_have_count(0)
    is_held = False  # also for what is requested from now on
    for route in held:
        route.continue_()
    expect(page.get_by_text("I am the demo model")).to_be_visible()


def test_a_session_without_a_folder_is_explained(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    page = open_device(start_hub(), place="/#/new", desktop=True)
    page.get_by_label("Folder").fill(" ")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("alert")).to_have_text(
        "The agent needs a folder. Enter one, or browse."
    )


def test_the_draft_of_a_new_session_is_stored_and_enter_pressed_twice_starts_one(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub()
    page = open_device(hub, place="/#/new", desktop=True)
    prompt = page.get_by_label("First prompt")
    prompt.fill("hello")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach a file").click()
    chooser.value.set_files(folder / "README.md")
    expect(page.get_by_role("list", name="Attachments")).to_contain_text("README.md")
    page.evaluate(STORED, "README.md")
    page.reload()
    expect(page.get_by_role("list", name="Attachments")).to_contain_text("README.md")
    page.get_by_label("Folder").fill(str(folder))
    prompt.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.get_by_text("I am the demo model")).to_be_visible()
    [session] = hub.call("GET", "/api/sessions")["sessions"]
    sent = hub.call("GET", f"/api/sessions/{session['sessionId']}/prompts")["prompts"]
    assert [[block["type"] for block in each["prompt"]] for each in sent] == [["resource", "text"]]
    page.goto(f"{hub.url}/#/new")
    expect(prompt).to_have_value("")


def test_a_turn_is_stopped_and_queued_prompts_are_edited_and_cancelled(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(slow=playing({"say": "I begin."}, {"stall": True}))
    session = hub.session("slow", folder)
    page = open_device(hub, place=f"/#/s/{session}", desktop=True)
    prompt = page.get_by_label("Prompt", exact=True)
    prompt.fill("first")
    prompt.press("Enter")
    expect(page.get_by_text("I begin.")).to_be_visible()
    for text in ("second", "third"):
        prompt.fill(text)
        prompt.press("Enter")
    waiting = page.get_by_role("list", name="Prompt queue")
    expect(waiting.get_by_role("listitem")).to_have_count(2)
    expect(waiting).to_contain_text("Queued")

    second, third = (waiting.get_by_role("listitem").nth(index) for index in (0, 1))
    third.get_by_role("button", name="Cancel prompt").click()
    expect(waiting.get_by_role("listitem")).to_have_count(1)
    second.get_by_role("button", name="Edit prompt").click()
    page.get_by_role("dialog").get_by_label("Prompt").fill("second, changed")
    page.get_by_role("button", name="Save").click()
    expect(waiting).to_contain_text("second, changed")

    page.get_by_role("button", name="Stop").click()
    transcript = page.get_by_role("log", name="Transcript")
    expect(transcript.get_by_text("Stopped")).to_be_visible()
    expect(transcript.get_by_text("second, changed")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_modes_and_commands_of_the_agent_are_offered(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub()
    session = hub.session("demo", folder)
    page = open_device(hub, place=f"/#/s/{session}", desktop=True)
    prompt = page.get_by_label("Prompt", exact=True)
    prompt.fill("/")
    commands = page.get_by_role("listbox", name="Commands")
    first = commands.get_by_role("option").first
    name = first.locator(".command-name").inner_text()
    prompt.press("Enter")
    expect(prompt).to_have_value(f"{name} ")

    chip = page.locator(".composer").get_by_role("button", name=re.compile("^Mode: "))
    before = chip.inner_text()
    chip.click()
    choices = page.get_by_role("dialog").get_by_role("radio", checked=False)
    wanted = choices.first.locator(".choice-label").inner_text()
    choices.first.click()
    expect(chip).to_have_text(wanted)
    assert wanted != before


def test_a_refused_change_of_an_option_is_reported_in_the_session(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub()
    page = open_device(hub, place=f"/#/s/{hub.session('demo', folder)}")
    error = {"code": "quarterdeck/agent", "message": "the agent does not want to"}
    refusal = {"status": 422, "json": {"error": error}}
    page.route("**/options", lambda route: route.fulfill(**refusal))
    page.locator(".composer").get_by_role("button", name=re.compile("^Mode: ")).tap()
    page.get_by_role("dialog").get_by_role("radio", checked=False).first.tap()
    expect(
        page.get_by_text("Could not change the option: the agent does not want to")
    ).to_be_visible()


def test_a_refused_prompt_stays_until_it_is_edited_and_sent_or_dismissed(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(quick=playing({"say": "Heard."}))
    page = open_device(hub, place=f"/#/s/{hub.session('quick', folder)}")
    error = {"code": "quarterdeck/invalid", "message": "that is too much at once"}
    refusal = {"status": 422, "json": {"error": error}}
    page.route("**/prompts", lambda route: route.fulfill(**refusal), times=1)
    page.get_by_label("Prompt", exact=True).fill("everything")
    page.get_by_role("button", name="Send").tap()
    waiting = page.get_by_role("list", name="Prompt queue")
    expect(waiting).to_contain_text("Not sent: that is too much at once")
    page.evaluate(STORED, "that is too much at once")
    page.reload()
    expect(waiting).to_contain_text("Not sent: that is too much at once")
    waiting.get_by_role("button", name="Edit prompt").tap()
    editing = page.get_by_role("dialog", name="Edit prompt")
    editing.get_by_label("Prompt").fill("one thing")
    editing.get_by_role("button", name="Send").tap()
    expect(page.get_by_text("Heard.")).to_be_visible()
    expect(waiting).to_have_count(0)
    transcript = page.get_by_role("log", name="Transcript")
    expect(transcript.get_by_text("one thing")).to_be_visible()
    expect(transcript.get_by_text("everything")).to_have_count(0)


def test_a_draft_survives_a_reload(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub()
    session = hub.session("demo", folder)
    page = open_device(hub, place=f"/#/s/{session}")
    page.get_by_label("Prompt", exact=True).fill("half a thought")
    page.evaluate(STORED, "half a thought")
    page.reload()
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("half a thought")


def test_a_failed_turn_shows_its_error(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(broken=playing({"say": "I try."}, {"fail": "the model is out of tea"}))
    session = hub.session("broken", folder)
    hub.prompt(session, "go")
    page = open_device(hub, place=f"/#/s/{session}")
    expect(page.get_by_text("Turn failed")).to_be_visible()
    expect(page.get_by_text("the model is out of tea")).to_be_visible()


def test_reading_earlier_lines_is_not_disturbed_by_new_ones(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    lines = [{"say": f"Paragraph {number}. " + "word " * 60 + "\n\n"} for number in range(40)]
    more = {"repeat": 60, "steps": [{"say": "late {n}\n\n"}, {"pause": 0.02}]}
    hub = start_hub(
        long=playing(
            *lines,
            {
                "ask": "a",
                "title": "On?",
                "input": {"command": "ls"},
                "kind": "execute",
                "allowed": [more],
            },
            pace=1,
        )
    )
    session = hub.session("long", folder)
    hub.prompt(session, "go")
    page = open_device(hub, place=f"/#/s/{session}", desktop=True)
    log = page.get_by_role("log", name="Transcript")
    button = page.get_by_role("button", name="Allow once")
    expect(button).to_have_attribute("aria-disabled", "false")
    log.evaluate(AT_END)
    log.hover()
    page.mouse.wheel(0, -2500)
    expect(page.get_by_role("button", name="Jump to latest")).to_be_visible()
    before = log.evaluate(PLACES)
    button.click()
    hub.until(f"/api/sessions/{session}", lambda answer: answer["session"]["status"] == "active")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(log.get_by_text("late 1", exact=True)).to_have_count(0)
    after = log.evaluate(PLACES)
    seen = [name for name, top in before.items() if 100 < top < 600 and name in after]
    assert seen
    assert {name: after[name] for name in seen} == {name: before[name] for name in seen}
    page.get_by_role("button", name="Jump to latest").click()
    expect(log.get_by_text("late 60")).to_be_visible()
    log.evaluate(AT_END)


def test_nothing_jumps_while_an_answer_streams(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    text = "## Part {n}\n\nSome **words** and `code`:\n\n- one\n- two\n\n```py\nx = 1\n```\n\n"
    steps = {"repeat": 25, "steps": [{"say": text, "pieces": 12, "pause": 0.004}]}
    hub = start_hub(talking=playing({"think": "Hm."}, steps, {"say": "The end."}, pace=1))
    session = hub.session("talking", folder)
    page = open_device(hub, place=f"/#/s/{session}")
    expect(page.get_by_text("is ready")).to_be_visible()
    hub.prompt(session, "go")
    expect(page.get_by_role("heading", name="Part 1", exact=True)).to_be_attached()
    page.evaluate(
        """() => {
            window.jumps = []
            new PerformanceObserver(list => {
                for (const entry of list.getEntries()) window.jumps.push(entry.value)
            }).observe({type: 'layout-shift'})
        }"""
    )
    expect(page.get_by_text("The end.")).to_be_visible()
    # The word beside the title changes, once.
    assert sum(page.evaluate("window.jumps")) < 0.001


def test_a_call_whose_end_the_agent_did_not_report_has_not_failed(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    """As hermes leaves its changes of files; the log has to close them with the turn."""
    steps = ({"tool": "c", "title": "Write notes"}, {"tool": "d", "title": "Write more"})
    hub = start_hub(silent=playing(*steps, {"finish": "d", "status": "failed"}, {"say": "Over."}))
    session = hub.session("silent", folder)
    hub.prompt(session, "go")
    page = open_device(hub, place=f"/#/s/{session}", desktop=True)
    transcript = page.get_by_role("log", name="Transcript")
    expect(transcript.get_by_text("Over.")).to_be_visible()
    for load in ("live or from the log", "from the log"):
        unreported = transcript.get_by_role("article", name=re.compile("Write notes"))
        expect(unreported.get_by_text("no result").first, load).to_be_attached()
        expect(unreported.get_by_text("failed")).to_have_count(0)
        failed = transcript.get_by_role("article", name=re.compile("Write more"))
        expect(failed.get_by_text("failed").first).to_be_attached()
        page.reload()


def test_a_session_is_archived_and_brought_back_even_if_it_is_the_only_one(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub()
    session = hub.session("demo", folder)
    page = open_device(hub)
    row = page.locator(f'a[href$="{session}"]')

    def choose(name: str) -> None:
        row.tap()
        page.get_by_role("button", name="Session details").tap()
        page.get_by_role("button", name=name, exact=True).tap()

    choose("Archive")
    expect(page.get_by_text("No matching sessions")).to_be_visible()
    expect(row).to_have_count(0)
    archived = page.get_by_role("button", name="Archived", exact=True)
    archived.tap()
    expect(row).to_contain_text("archived")
    page.reload()
    archived.tap()
    choose("Unarchive")
    page.get_by_role("button", name="Back to sessions").tap()
    expect(page.get_by_text("No matching sessions")).to_be_visible()
    archived.tap()
    expect(row).to_contain_text("idle")

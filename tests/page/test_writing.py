"""Attachments of prompts: files of the session, chosen files, and content shared by other apps."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect

from tests.page.browsing import OpenDevice, StartHub
from tests.page.hubs import playing

SHARING = """([url, name]) => {
    const form = document.createElement('form')
    Object.assign(form, {action: url + '/share', method: 'post', enctype: 'multipart/form-data'})
    const field = (name, value) => {
        const made = Object.assign(document.createElement('input'), {name, value})
        form.append(made)
    }
    field('title', 'A page')
    field('text', 'A page')
    const files = Object.assign(document.createElement('input'), {type: 'file', name: 'files'})
    const list = new DataTransfer()
    list.items.add(new File(['one'], name, {type: 'text/plain'}))
    files.files = list.files
    form.append(files)
    document.body.append(form)
    form.submit()
}"""


def test_a_file_is_found_by_letters_and_reaches_the_agent_as_a_link(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    (folder / "src").mkdir()
    (folder / "src/client.py").touch()
    hub = start_hub(quick=playing({"say": "Seen."}))
    session = hub.session("quick", folder)
    page = open_device(hub, place=f"/#/s/{session}", desktop=True)
    prompt = page.get_by_label("Prompt", exact=True)
    prompt.press_sequentially("Look at @cli")
    files = page.get_by_role("listbox", name="Files")
    expect(files.get_by_role("option", selected=True)).to_contain_text("src/client.py")
    prompt.press("Escape")
    expect(files).to_have_count(0)
    prompt.press_sequentially("e")
    expect(files).to_be_visible()
    prompt.press("Enter")
    expect(prompt).to_have_value("Look at @src/client.py ")
    expect(page.get_by_role("list", name="Attachments")).to_contain_text("src/client.py")
    prompt.press_sequentially("again")
    prompt.press("Enter")
    expect(page.get_by_text("Seen.")).to_be_visible()
    sent = hub.call("GET", f"/api/sessions/{session}/prompts")["prompts"][0]["prompt"]
    assert sent == [
        {
            "type": "resource_link",
            "name": "src/client.py",
            "uri": (folder / "src/client.py").as_uri(),
        },
        {"type": "text", "text": "Look at @src/client.py again"},
    ]


def test_all_chosen_files_are_attached(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(quick=playing({"say": "Seen."}))
    session = hub.session("quick", folder)
    page = open_device(hub, place=f"/#/s/{session}")
    names = ["one.txt", "two.txt", "three.txt"]
    for name in names:
        (folder / name).write_text(name)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Attach a file").tap()
    chooser.value.set_files([folder / name for name in names])
    attached = page.get_by_role("list", name="Attachments").get_by_role("listitem")
    expect(attached).to_have_text([re.compile(name) for name in names])
    page.get_by_role("button", name="Send").tap()
    expect(page.get_by_text("Seen.")).to_be_visible()
    sent = hub.call("GET", f"/api/sessions/{session}/prompts")["prompts"][0]["prompt"]
    assert [each["resource"]["text"] for each in sent] == names


def test_completions_scroll_by_touch_and_are_accepted_by_a_tap(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    for number in range(8):
        (folder / f"client{number}.py").touch()
    hub = start_hub()
    page = open_device(hub, place=f"/#/s/{hub.session('demo', folder)}")
    prompt = page.get_by_label("Prompt", exact=True)
    prompt.press_sequentially("@client")
    offered = page.get_by_role("listbox", name="Files").get_by_role("option")
    expect(offered).to_have_count(8)
    offered.nth(3).dispatch_event("pointerdown")
    expect(prompt).to_have_value("@client")
    offered.nth(3).tap()
    expect(prompt).to_have_value("@client3.py ")
    expect(prompt).to_be_focused()


def test_shared_content_is_added_to_a_session_and_sent_only_by_the_user(
    start_hub: StartHub, open_device: OpenDevice, folder: Path
) -> None:
    hub = start_hub(quick=playing({"say": "Seen."}))
    session = hub.session("quick", folder)
    page = open_device(hub, worker=True)
    page.evaluate("() => navigator.serviceWorker.ready.then(() => null)")
    page.goto("about:blank")
    page.evaluate(SHARING, [hub.url, "<b>one</b>.txt"])
    expect(page.get_by_label("First prompt")).to_have_value("A page")
    attached = page.get_by_role("list", name="Attachments")
    expect(attached).to_contain_text("<b>one</b>.txt")
    assert page.url == f"{hub.url}/#/new"
    page.get_by_role("button", name="New session in harbour").tap()
    expect(page.get_by_label("Prompt", exact=True)).to_have_value("A page")
    expect(attached).to_contain_text("<b>one</b>.txt")
    assert hub.call("GET", f"/api/sessions/{session}/prompts")["prompts"] == []
    page.get_by_role("button", name="Send").tap()
    expect(page.get_by_text("Seen.")).to_be_visible()

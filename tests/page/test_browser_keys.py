"""The key of a browser: it cannot be copied, and what others receive of it is worth nothing."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, TimeoutError as PlaywrightTimeoutError, expect

from tests.page.browsing import PAIRING, OpenDevice, StartHub
from tests.page.hostile_server import HostileServer, Recorded, hostile_server
from tests.page.hubs import PATIENCE, HubProcess

# The stored key, and what the browser says to every attempt to copy it.
EXPORTS = """async () => {
    const opening = indexedDB.open('quarterdeck-key', 1)
    await new Promise(done => opening.onsuccess = done)
    const asked = opening.result.transaction('key').objectStore('key').get('this')
    await new Promise(done => asked.onsuccess = done)
    const {privateKey} = asked.result.keys
    const said = {extractable: privateKey.extractable, usages: privateKey.usages}
    for (const format of ['jwk', 'pkcs8', 'raw', 'spki']) {
        said[format] = await crypto.subtle.exportKey(format, privateKey)
            .then(() => 'exported', error => error.name)
    }
    const wrapping = await crypto.subtle.generateKey(
        {name: 'AES-GCM', length: 256}, true, ['wrapKey'])
    const iv = new Uint8Array(12)
    said.wrap = await crypto.subtle.wrapKey('pkcs8', privateKey, wrapping, {name: 'AES-GCM', iv})
        .then(() => 'wrapped', error => error.name)
    said.json = JSON.stringify(privateKey)
    return said
}"""
# Everything that a page at another port can make a browser send to a hub and to itself.
CROSS_PORT = """async hub => {
    const tries = {}
    const get = async (name, path, init) => {
        tries[name] = await fetch(hub + path, init).then(
            async answer => `${answer.type} ${answer.status} ${(await answer.text()).length}`,
            error => error.name)
    }
    const body = JSON.stringify({code: 'x'})
    await get('read', '/api/device', {credentials: 'include'})
    await get('blind', '/api/device', {credentials: 'include', mode: 'no-cors'})
    await get('post', '/api/logout', {method: 'POST', credentials: 'include', mode: 'no-cors'})
    await get('json', '/api/pairings', {
        method: 'POST', credentials: 'include', body,
        headers: {'content-type': 'application/json'}})
    await get('bearer', '/api/device', {headers: {authorization: 'QuarterdeckKey x'}})
    tries.databases = (await indexedDB.databases()).map(each => each.name)
    tries.cookie = document.cookie
    tries.socket = await new Promise(done => {
        const socket = new WebSocket(hub.replace('http', 'ws') + '/api/envelope', ['quarterdeck'])
        socket.onopen = () => done('open')
        socket.onerror = () => done('refused')
    })
    tries.frame = await new Promise(done => {
        const frame = document.createElement('iframe')
        frame.src = hub + '/'
        frame.onload = () => {
            try { done(String(frame.contentWindow.indexedDB)) } catch (error) { done(error.name) }
        }
        document.body.append(frame)
    })
    return tries
}"""
# What reaches past requests: other windows, workers, channels, streams, scripts, forms.
CROSS_PORT_WINDOWS = """async hub => {
    const tries = {}
    const failed = (name, make) => {
        try { tries[name] = String(make()) } catch (error) { tries[name] = error.name }
    }
    const heard = []
    for (const name of ['quarterdeck', 'quarterdeck-key', 'data', 'sw']) {
        new BroadcastChannel(name).onmessage = event => heard.push(event.data)
    }
    addEventListener('message', event => heard.push(event.data))
    tries.worker = await new Promise(done => {
        try { new Worker(hub + '/sw.js').onerror = () => done('failed') }
        catch (error) { done(error.name) }
    })
    failed('shared', () => new SharedWorker(hub + '/sw.js'))
    await navigator.serviceWorker.register(hub + '/sw.js').catch(() => {})
    tries.registered = (await navigator.serviceWorker.getRegistrations()).length
    const source = new EventSource(hub + '/api/events')
    tries.source = await new Promise(done => {
        source.onopen = () => done('open')
        source.onerror = () => done('refused')
    })
    source.close()
    for (const tag of ['script', 'img']) {
        tries[tag] = await new Promise(done => {
            const element = document.createElement(tag)
            element.onload = () => done('loaded')
            element.onerror = () => done('refused')
            element.src = hub + (tag === 'img' ? '/favicon.svg' : '/sw.js')
            document.body.append(element)
        })
    }
    const form = document.createElement('form')
    Object.assign(form, {method: 'POST', action: hub + '/api/logout', target: 'form'})
    document.body.append(form)
    const other = open('about:blank', 'form')
    form.submit()
    const page = open(hub + '/', 'page')
    await new Promise(done => setTimeout(done, 2000))
    page.postMessage({type: 'open', url: '/#/devices'}, '*')
    page.postMessage({type: 'take-over'}, '*')
    failed('document', () => page.document.title)
    tries.closed = page.closed
    failed('formDocument', () => other.document.body.innerHTML)
    tries.caches = await caches.keys()
    tries.locks = (await navigator.locks.query()).held.length
    tries.heard = heard
    return tries
}"""
OTHER_PROGRAM = re.compile("Another program or another hub answers at this address")
NO_INDEXED_DB = "Object.defineProperty(window, 'indexedDB', {value: undefined})"
NO_CRYPTO = "Object.defineProperty(Crypto.prototype, 'subtle', {get: () => undefined})"
WRONG_CLOCK = """{
    const [now, Real] = [Date.now.bind(Date), Date]
    const shift = 8 * 3600_000
    Date = class extends Real {
        constructor(...given) { given.length ? super(...given) : super(now() + shift) }
        static now() { return now() + shift }
    }
}"""
ADJUSTABLE_TIMER = """{
    const real = performance.now.bind(performance)
    window.ahead = 0
    performance.now = () => real() + window.ahead
}"""
SOCKET = """async ({path}) => {
    const base64url = bytes => btoa(String.fromCharCode(...new Uint8Array(bytes)))
        .replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
    const opening = indexedDB.open('quarterdeck-key', 1)
    await new Promise(done => opening.onsuccess = done)
    const asked = opening.result.transaction('key').objectStore('key').get('this')
    await new Promise(done => asked.onsuccess = done)
    const {privateKey} = asked.result.keys
    const random = () => base64url(crypto.getRandomValues(new Uint8Array(16)))
    const {nonce, time} = await (await fetch(`/api/nonce?challenge=${random()}`)).json()
    const digest = base64url(await crypto.subtle.digest('SHA-256', new Uint8Array()))
    const parts = [asked.result.deviceId, nonce, String(time), random(), digest]
    const lines = ['quarterdeck-request-1', 'WEBSOCKET', location.origin, path, ...parts]
    const signed = await crypto.subtle.sign({name: 'ECDSA', hash: 'SHA-256'}, privateKey,
        new TextEncoder().encode(lines.join('\\n')))
    const proof = 'quarterdeck.proof.' + [...parts, base64url(signed)].join('.')
    const open = () => new Promise(done => {
        const socket = new WebSocket(path, ['quarterdeck', proof])
        socket.onopen = () => done(`open as ${socket.protocol}`)
        socket.onerror = () => done('refused')
    })
    return [await open(), await open()]
}"""


def _live(page: Page) -> None:
    expect(page.get_by_text("Live", exact=True).first).to_be_visible()


def _until(is_true: Callable[[], object]) -> None:
    ends = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < ends
        time.sleep(0.02)


def _recording(page: Page) -> list[Recorded]:
    """Record what a page sends to its hub."""
    sent: list[Recorded] = []

    def on_request(request: Request) -> None:
        body = request.post_data_buffer or b""
        path = "/" + request.url.split("/", 3)[3]
        sent.append(Recorded(request.method, path, request.headers, body))

    page.on("request", on_request)
    return sent


def _assert_worthless(recorded: list[Recorded], hub: HubProcess) -> int:
    """Replay everything; return how many requests needed a device."""
    devices = hub.call("GET", "/api/devices")
    tried = 0
    for each in recorded:
        is_public = not each.path.startswith("/api/") or each.path.startswith("/api/nonce")
        if is_public or each.method == "OPTIONS":
            continue
        status = each.replayed_at(hub.url)
        assert status in (400, 401, 403), (each, status)
        tried += 1
    after = hub.call("GET", "/api/devices")
    assert [each["id"] for each in after["devices"]] == [each["id"] for each in devices["devices"]]
    return tried


def test_the_key_of_a_browser_cannot_be_copied_and_no_cookie_exists(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    page = open_device(hub, None, place="/")
    page.goto(hub.link("approve"))
    page.get_by_role("button", name="Pair this device").click()
    _live(page)
    said = page.evaluate(EXPORTS)
    assert said.pop("extractable") is False
    assert said.pop("usages") == ["sign"]
    assert said.pop("json") == "{}"
    assert not {"exported", "wrapped"} & {*said.values()}, said
    assert page.context.cookies() == []
    stored = page.context.storage_state()
    assert stored["cookies"] == []
    assert "qd_" not in json.dumps(stored)
    page.reload()
    _live(page)


def test_a_page_at_another_port_gets_nothing_that_it_can_use(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    page = open_device(hub, "admin")
    _live(page)
    with hostile_server() as hostile:
        hostile.answers["/"] = (200, "text/html", b"<body>hostile")
        away = page.context.new_page()
        away.goto(hostile.url + "/")
        tries = away.evaluate(CROSS_PORT, hub.url)
        assert tries == {
            "read": "TypeError",
            "blind": "TypeError",  # Cross-Origin-Resource-Policy
            "post": "TypeError",
            "json": "TypeError",
            "bearer": "TypeError",
            "databases": [],
            "cookie": "planted=1",
            "socket": "refused",
            "frame": "SecurityError",
        }
        page.reload()
        _live(page)
        received = [*hostile.received]
    assert received
    for each in received:
        assert "authorization" not in {name.lower() for name in each.headers}
        assert set(each.headers.get("Cookie", "planted=1").split("; ")) == {"planted=1"}
    devices = hub.call("GET", "/api/devices")["devices"]
    assert len(devices) == 2, "no request of the other page ended or made a device"


def test_a_page_at_another_port_reaches_no_window_worker_or_stream(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    page = open_device(hub, "admin")
    _live(page)
    with hostile_server() as hostile:
        hostile.answers["/"] = (200, "text/html", b"<body>hostile")
        away = page.context.new_page()
        away.goto(hostile.url + "/")
        tries = away.evaluate(CROSS_PORT_WINDOWS, hub.url)
        assert tries == {
            "worker": "SecurityError",
            "shared": "SecurityError",
            "registered": 0,
            "source": "refused",
            "script": "refused",
            "img": "refused",
            "closed": True,  # Cross-Origin-Opener-Policy: not the window of the hub
            "document": "SecurityError",
            "formDocument": "SecurityError",
            "caches": [],
            "locks": 0,
            "heard": [],
        }
        # A link with a code that is not valid leaves a paired browser as it is.
        away.goto(f"{hub.url}/#pair={'x' * 43}")
        page.reload()
        _live(page)
        received = [*hostile.received]
    assert all("authorization" not in {name.lower() for name in each.headers} for each in received)
    assert len(hub.call("GET", "/api/devices")["devices"]) == 2


@pytest.mark.parametrize("disguise", ["silent", "refusing", "agreeing", "replaying"])
def test_what_the_port_of_a_stopped_hub_receives_is_worth_nothing(
    start_hub: StartHub, open_device: OpenDevice, folder: Path, disguise: str
) -> None:
    hub = start_hub()
    session = hub.session("demo", folder)
    page = open_device(hub, place=f"/#/s/{session}", desktop=True)
    sent = _recording(page)
    prompt = page.get_by_label("Prompt", exact=True)
    prompt.fill("before")
    prompt.press("Enter")
    expect(page.get_by_text("You said: before")).to_be_visible()
    old = json.dumps(hub.call("GET", "/api/nonce?challenge=" + "A" * 22)).encode()
    assert _assert_worthless(sent, hub) > 3, "a replay to the hub that received it"
    hub.stop(signal.SIGKILL)
    with hostile_server(int(hub.url.rpartition(":")[2])) as hostile:
        _disguise(hostile, disguise, old)
        expect(page.get_by_text(OTHER_PROGRAM).first).to_be_visible()
        # What the browser was sending as the hub ended may arrive here: worth nothing, see below.
        known = len(hostile.received)
        prompt.fill("a secret plan")
        prompt.press("Enter")
        seen = len(hostile.received)
        page.get_by_role("button", name="Retry now").first.click()
        _until(lambda: len(hostile.received) > seen)
        expect(page.get_by_text("Will send when online")).to_be_visible()
        received = [*hostile.received]
    for each in received:
        assert (each.body, each.headers.get("Cookie")) == (b"", None)
    for each in received[known:]:
        assert each.path.startswith("/api/nonce?challenge="), each
        assert "authorization" not in {name.lower() for name in each.headers}
    hub.start()
    _assert_worthless([*received, *sent], hub)
    # The page may have connected by itself meanwhile; then there is no button any more.
    with suppress(PlaywrightTimeoutError):
        page.get_by_role("button", name="Retry now").first.click(timeout=1_000)
    expect(page.get_by_text("You said: a secret plan")).to_be_visible()


def _disguise(hostile: HostileServer, disguise: str, old: bytes) -> None:
    """Answer as something that could make a page send more."""
    stale = b'{"error":{"code":"quarterdeck/stale-signature","message":"again"}}'
    unknown = b'{"error":{"code":"quarterdeck/unauthorized","message":"pair again"}}'
    if disguise == "refusing":
        hostile.answers["/api/nonce"] = (401, "application/json", unknown)
        hostile.answers["*"] = (401, "application/json", stale)
    elif disguise == "agreeing":
        made = json.dumps({"nonce": "A" * 22, "time": 5, "signature": "A" * 86}).encode()
        hostile.answers["/api/nonce"] = (200, "application/json", made)
        hostile.answers["*"] = (200, "application/json", b"{}")
    elif disguise == "replaying":
        hostile.answers["/api/nonce"] = (200, "application/json", old)
        hostile.answers["*"] = (401, "application/json", stale)


def test_the_page_of_another_program_is_not_opened_in_place_of_the_cached_one(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    page = open_device(hub, worker=True)
    _live(page)
    page.evaluate("() => navigator.serviceWorker.ready.then(() => true)")
    page.reload()  # now the service worker controls it
    _live(page)
    hub.stop(signal.SIGKILL)
    with hostile_server(int(hub.url.rpartition(":")[2])) as hostile:
        hostile.answers["/"] = (200, "text/html", b"<h1>hostile</h1>")
        page.reload()
        expect(page.get_by_text(OTHER_PROGRAM).first).to_be_visible()
        expect(page.get_by_text("hostile")).to_have_count(0)
    hub.start()
    page.reload()
    _live(page)


def test_a_hub_that_was_set_up_again_is_paired_by_a_link(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    page = open_device(hub)
    _live(page)
    hub.stop()
    for path in sorted(hub.home.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    hub.start()
    page.get_by_role("button", name="Retry now").first.click()
    expect(page.get_by_text(re.compile("open a pairing link")).first).to_be_visible()
    page.goto(hub.link("approve"))
    page.get_by_role("button", name="Pair this device").click()
    _live(page)


def test_wrong_clocks_do_not_matter(start_hub: StartHub, open_device: OpenDevice) -> None:
    hub = start_hub()
    page = open_device(hub, None, place="/")
    page.add_init_script(WRONG_CLOCK + ADJUSTABLE_TIMER)
    page.goto(hub.link("admin"))
    page.reload()
    page.goto(hub.link("admin"))
    page.get_by_role("button", name="Pair this device").click()
    _live(page)
    # As after a sleep, which stops the clocks of some browsers.
    for ahead in (3_600_000, -3_600_000):
        page.evaluate("ahead => { window.ahead = ahead }", ahead)
        page.goto(hub.url + "/#/devices")
        expect(page.locator(".row-title", has_text="this computer")).to_be_visible()
        page.goto(hub.url + "/#/")


def test_a_window_follows_when_another_one_is_paired(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    first = open_device(hub, None)
    second = first.context.new_page()
    second.goto(hub.url)
    expect(second.get_by_label("Pairing code", exact=True)).to_be_visible()
    for scope in ("view", "admin"):  # the second time the first window has a key that was revoked
        code = hub.call("POST", "/api/pairings", {"scope": scope})["code"]
        if scope == "admin":
            assert first.evaluate(PAIRING, {"code": code, "name": "again"}) == 200
            hub.call("DELETE", f"/api/devices/{_named(hub, 'phone')}")
        else:
            first.get_by_label("Pairing code", exact=True).fill(code)
            first.get_by_label("Device name").fill("phone")
            first.get_by_role("button", name="Pair this device").click()
            _live(first)
        second.evaluate("() => dispatchEvent(new Event('online'))")
        _live(second)


def _named(hub: HubProcess, name: str) -> str:
    devices = hub.call("GET", "/api/devices")["devices"]
    return next(str(each["id"]) for each in devices if each["name"] == name)


def test_without_storage_a_browser_is_paired_until_the_page_is_closed(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    page = open_device(hub, None)
    page.add_init_script(NO_INDEXED_DB)
    page.goto("about:blank")
    page.goto(hub.link("approve"))
    page.get_by_role("button", name="Pair this device").click()
    expect(page.get_by_text("stays paired only until you close the page")).to_be_visible()
    _live(page)
    page.reload()
    expect(page.get_by_text("This device is not paired with the hub")).to_be_visible()


def test_a_browser_whose_data_was_cleared_pairs_again(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    page = open_device(start_hub())
    _live(page)
    page.evaluate(
        "async () => { for (const each of await indexedDB.databases())"
        " await new Promise(done => { const asked = indexedDB.deleteDatabase(each.name);"
        " asked.onsuccess = asked.onblocked = done }) }"
    )
    page.reload()
    expect(page.get_by_text("Pair again if you cleared this browser's data")).to_be_visible()


def test_where_browsers_make_no_keys_the_page_says_what_to_do(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    page = open_device(hub, None)
    page.add_init_script(NO_CRYPTO)
    page.goto("about:blank")
    page.goto(hub.link("approve"))
    expect(page.get_by_role("alert")).to_contain_text("over HTTPS or from localhost")
    expect(page.get_by_role("alert")).to_contain_text("http://127.0.0.1:")
    expect(page.get_by_role("button", name="Pair this device")).to_be_disabled()


def test_a_websocket_is_opened_with_a_proof_that_works_once(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    page = open_device(start_hub())
    _live(page)
    assert page.evaluate(SOCKET, {"path": "/api/envelope"}) == ["open as quarterdeck", "refused"]


def test_signing_out_deletes_the_key(start_hub: StartHub, open_device: OpenDevice) -> None:
    page = open_device(start_hub(), place="/#/settings")
    page.get_by_role("button", name="Sign out this device").click()
    page.get_by_role("button", name="Tap again to sign out").click()
    expect(page.get_by_text("This device is not paired with the hub")).to_be_visible()
    page.reload()
    expect(page.get_by_text("This device is not paired with the hub")).to_be_visible()


def test_each_address_of_the_hub_has_a_key_of_its_own(
    start_hub: StartHub, open_device: OpenDevice
) -> None:
    hub = start_hub()
    page = open_device(hub, None)
    for host in ("127.0.0.1", "localhost", "[::1]"):
        page.goto(hub.url.replace("127.0.0.1", host))
        expect(page.get_by_label("Pairing code", exact=True)).to_be_visible()
        page.goto(hub.link("view").replace("127.0.0.1", host))
        page.get_by_role("button", name="Pair this device").click()
        _live(page)
    assert len(hub.call("GET", "/api/devices")["devices"]) == 4

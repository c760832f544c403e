"""The browser that tests, screenshots and benchmarks of the page use."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Final

from playwright.sync_api import Page

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

# Makes a key, registers it with a code, and stores it where the page looks for it.
PAIRING: Final = """async ({code, name}) => {
    const base64url = bytes => btoa(String.fromCharCode(...new Uint8Array(bytes)))
        .replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')
    const ecdsa = {name: 'ECDSA', namedCurve: 'P-256'}
    const keys = await crypto.subtle.generateKey(ecdsa, false, ['sign', 'verify'])
    const publicKey = base64url(await crypto.subtle.exportKey('raw', keys.publicKey))
    const challenge = base64url(crypto.getRandomValues(new Uint8Array(16)))
    const {nonce} = await (await fetch(`/api/nonce?challenge=${challenge}`)).json()
    const text = ['quarterdeck-pairing-1', location.origin, code, publicKey, nonce].join('\\n')
    const signed = await crypto.subtle.sign(
        {name: 'ECDSA', hash: 'SHA-256'}, keys.privateKey, new TextEncoder().encode(text))
    const body = {code, name, key: {publicKey, nonce, signature: base64url(signed)}}
    const headers = {'content-type': 'application/json'}
    const answer = await fetch('/api/pair', {method: 'POST', headers, body: JSON.stringify(body)})
    if (!answer.ok) return answer.status
    const {device, hubKey} = await answer.json()
    const opening = indexedDB.open('quarterdeck-key', 1)
    opening.onupgradeneeded = () => opening.result.createObjectStore('key')
    await new Promise(done => opening.onsuccess = done)
    const table = opening.result.transaction('key', 'readwrite').objectStore('key')
    const storing = table.put({deviceId: device.id, keys, hubKey}, 'this')
    await new Promise(done => storing.transaction.oncomplete = done)
    opening.result.close()
    return answer.status
}"""

StartHub = Callable[..., HubProcess]
OpenDevice = Callable[..., Page]


def chromium() -> str | None:
    """Return the program; None if there is none."""
    named = os.environ.get("QUARTERDECK_CHROMIUM")
    return named or next(filter(None, map(shutil.which, PROGRAMS)), None)


def let_in(page: Page, hub: HubProcess, scope: str) -> None:
    """Pair a browser as its page would, without loading that."""
    code = hub.call("POST", "/api/pairings", {"scope": scope})["code"]
    page.goto(hub.url + "/healthz")  # any document of the origin
    assert page.evaluate(PAIRING, {"code": code, "name": "A browser"}) == 200


def pair(page: Page, link: str, name: str | None = None) -> None:
    """Let a page in."""
    page.goto(link)
    if name is not None:
        page.get_by_label("Device name").fill(name)
    page.get_by_role("button", name="Pair this device").click()
    page.get_by_role("navigation", name="Main").wait_for()

"""A phone on the network, from nothing to an approval: it trusts the hub, pairs, and answers.

The phone is Chromium in a network namespace of its own. What it trusts is what its owner has
installed: at first nothing of the hub, then the certificate that the hub's own page offers.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from playwright.sync_api import Browser, BrowserContext, Error, expect

from tests.hub.reach.networks import PHONE, Networks, open_networks
from tests.hub.reach.phone_hub import PhoneHub, phone_hub
from tests.page.browsing import FLAGS, chromium
from tests.page.hubs import PATIENCE, playing

ASK: dict[str, Any] = {
    "ask": "call-1",
    "title": "Look",
    "kind": "execute",
    "input": {"command": "ls -la"},
    "allowed": [{"finish": "call-1"}, {"say": "It was allowed."}],
    "rejected": [{"say": "It was rejected."}],
}


class Phone:
    """Chromium on the phone, with what it trusts."""

    def __init__(self, browser: Browser, networks: Networks, folder: Path) -> None:
        self._browser = browser
        self._folder = folder
        self._store = folder / ".pki" / "nssdb"
        self._store.mkdir(parents=True)
        self._certutil("-N", "--empty-password")
        self._program = folder / "chromium"
        command = shlex.join([*networks.in_phone, str(chromium())])
        self._program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        self._program.chmod(0o755)

    def trust(self, certificate: Path) -> None:
        """Install an authority, as its owner would in the settings."""
        self._certutil("-A", "-n", "hub", "-t", "C,,", "-i", str(certificate))

    def _certutil(self, *arguments: str) -> None:
        command = ["certutil", "-d", f"sql:{self._store}", *arguments]
        subprocess.run(command, check=True, timeout=30)

    def open(self) -> BrowserContext:
        """Start the browser: it reads at its start what it trusts."""
        started = self._browser.browser_type.launch(
            executable_path=self._program,
            args=list(FLAGS),
            env={"HOME": str(self._folder), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        )
        context = started.new_context(viewport={"width": 390, "height": 844}, is_mobile=True)
        context.set_default_timeout(PATIENCE * 1000)
        return context


def test_a_phone_trusts_the_hub_then_pairs_with_the_link_and_approves(
    browser: Browser, tmp_path: Path, folder: Path
) -> None:
    (tmp_path / "phone").mkdir()
    config = tmp_path / "hub.toml"
    command, *arguments = playing(ASK)
    config.write_text(
        f"[agents.asking]\ncommand = {json.dumps(command)}\nargs = {json.dumps(arguments)}\n"
    )
    config.chmod(0o600)
    with open_networks() as networks:
        networks.run("ip link set tailscale0 down")
        with phone_hub(networks, tmp_path / "home", "--config", str(config)) as hub:
            phone = Phone(browser, networks, tmp_path / "phone")
            certificate = _downloaded(phone, hub, tmp_path)
            phone.trust(certificate)
            _pairs_and_approves(phone, hub, folder)


def _downloaded(phone: Phone, hub: PhoneHub, folder: Path) -> Path:
    """Open the page that the first QR code leads to; return the certificate it offers."""
    context = phone.open()
    page = context.new_page()
    page.goto(hub.reach["trustUrl"])
    shown = page.locator("section", has_text="Compare the fingerprint").locator("code")
    assert shown.inner_text().replace("\n", "") == hub.reach["fingerprint"]
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download the certificate").click()
    found = x509.load_der_x509_certificate(downloading.value.path().read_bytes())
    assert found.fingerprint(hashes.SHA256()).hex(":").upper() == hub.reach["fingerprint"]
    with pytest.raises(Error, match="ERR_CERT_AUTHORITY_INVALID"):
        page.goto(hub.start["pairing"]["link"])
    assert context.browser is not None
    context.browser.close()
    path = folder / "installed.pem"
    path.write_bytes(found.public_bytes(Encoding.PEM))
    return path


def _pairs_and_approves(phone: Phone, hub: PhoneHub, folder: Path) -> None:
    context = phone.open()
    page = context.new_page()
    page.goto(hub.start["pairing"]["link"])
    page.get_by_role("button", name="Pair this device").click()
    page.get_by_role("navigation", name="Main").wait_for()
    assert page.url.startswith(hub.reach["url"])
    made = hub.call("POST", "/api/sessions", {"agent": "asking", "cwd": str(folder)})
    path = f"/api/sessions/{made['sessionId']}"
    hub.call("POST", f"{path}/prompts", {"key": "first", "prompt": "go"})
    page.goto(hub.reach["url"] + "/#/inbox")
    card = page.get_by_role("region", name=re.compile("^Approval")).first
    expect(card.get_by_text("ls -la").first).to_be_visible()
    allow = card.get_by_role("button", name=re.compile("^Allow")).first
    expect(allow).to_have_attribute("aria-disabled", "false")
    allow.click()
    expect(page.get_by_text("You're all caught up")).to_be_visible()
    (decision,) = hub.call("GET", "/api/decisions")["decisions"]
    devices = hub.call("GET", "/api/devices")["devices"]
    (answered,) = (each for each in devices if each["id"] == decision["by"]["deviceId"])
    assert (answered["scope"], answered["lastAddress"]) == ("approve", PHONE)
    assert context.browser is not None
    context.browser.close()

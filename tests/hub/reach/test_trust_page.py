"""`hub.reach.trust_page`: what a phone gets that does not trust the hub yet."""

from __future__ import annotations

import plistlib
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509

from quarterdeck.http.certificate_pins import pin_fingerprint
from quarterdeck.hub.certificates import PrivateAuthority, open_authority
from quarterdeck.hub.reach.trust_page import TrustPage

ORIGIN = "https://192.168.1.20:7272"


@pytest.fixture
def authority(tmp_path: Path) -> PrivateAuthority:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return open_authority(home, time.time())


async def ask(page: TrustPage, path: str, method: str = "GET") -> httpx.Response:
    transport = httpx.ASGITransport(app=page)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://192.168.1.20:7273"
    ) as client:
        return await client.request(method, path)


async def filled(authority: PrivateAuthority, path: str, **more: Any) -> httpx.Response:
    page = TrustPage()
    page.fill(authority, ORIGIN)
    return await ask(page, path, **more)


async def test_the_certificate_is_the_authority_in_the_form_that_android_installs(
    authority: PrivateAuthority,
) -> None:
    answer = await filled(authority, "/quarterdeck.crt")
    assert answer.headers["content-type"] == "application/x-x509-ca-cert"
    assert x509.load_der_x509_certificate(answer.content) == authority.certificate


async def test_the_profile_holds_the_authority_and_nothing_else(
    authority: PrivateAuthority,
) -> None:
    answer = await filled(authority, "/quarterdeck.mobileconfig")
    assert answer.headers["content-type"] == "application/x-apple-aspen-config"
    profile = plistlib.loads(answer.content)
    assert profile["PayloadType"] == "Configuration"
    (payload,) = profile["PayloadContent"]
    assert payload["PayloadType"] == "com.apple.security.root"
    assert payload["PayloadContent"] == authority.der
    assert profile["PayloadUUID"] != payload["PayloadUUID"]


async def test_the_page_shows_the_fingerprint_and_the_steps_for_both_systems(
    authority: PrivateAuthority,
) -> None:
    text = (await filled(authority, "/")).text
    assert pin_fingerprint(authority.pin) in text.replace("<br>", "")
    for words in ("Certificate Trust Settings", "Install anyway", ORIGIN, "iPhone", "Android"):
        assert words in text
    assert "[" not in re.sub(r"<script>.*</script>", "", text, flags=re.DOTALL)


async def test_the_page_runs_no_script_and_loads_nothing(authority: PrivateAuthority) -> None:
    answer = await filled(authority, "/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert not re.search(r"<script|<img|src=|https?://(?!192\.168\.1\.20)", answer.text)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/sessions", 404),
        ("GET", "/quarterdeck.key", 404),
        ("GET", "/../authority.key", 404),
        ("POST", "/", 405),
        ("HEAD", "/", 200),
    ],
)
async def test_nothing_else_is_served(
    authority: PrivateAuthority, method: str, path: str, status: int
) -> None:
    answer = await filled(authority, path, method=method)
    assert answer.status_code == status
    assert b"PRIVATE" not in answer.content


async def test_it_is_empty_until_the_hub_needs_it() -> None:
    assert (await ask(TrustPage(), "/")).status_code == 404

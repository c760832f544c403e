"""The page where a phone gets the hub's own certificate authority, and how to trust it.

A browser cannot pin, so a phone has to trust the authority before it can open the hub. This page is
served in clear text, at a port of its own, because the phone trusts nothing yet. It has nothing
secret and takes no input: a person on the network who changes it could make the phone trust another
authority, which is why the fingerprint is to be compared with the one that the terminal shows.
"""

from __future__ import annotations

import plistlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Final

from quarterdeck.http.asgi import Message, Receive, Send
from quarterdeck.http.certificate_pins import pin_fingerprint
from quarterdeck.hub.certificates import PrivateAuthority

CERTIFICATE_PATH: Final = "/quarterdeck.crt"
PROFILE_PATH: Final = "/quarterdeck.mobileconfig"
_FINGERPRINT_LINE: Final = 24  # eight bytes
_POLICY: Final = (
    b"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    b" frame-ancestors 'none'"
)
_PROFILE_SPACE: Final = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")


@dataclass(frozen=True, kw_only=True)
class _File:
    content_type: str
    body: bytes


class TrustPage:
    """The files of the page; an ASGI application. Empty until it is filled."""

    def __init__(self) -> None:
        self._files: Mapping[str, _File] = {}

    def fill(self, authority: PrivateAuthority, origin: str) -> None:
        """Offer an authority, for a hub at `origin`."""
        self._files = {
            "/": _File(
                content_type="text/html; charset=utf-8",
                body=_page(authority, origin).encode(),
            ),
            CERTIFICATE_PATH: _File(content_type="application/x-x509-ca-cert", body=authority.der),
            PROFILE_PATH: _File(
                content_type="application/x-apple-aspen-config", body=profile(authority)
            ),
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1000})
            return
        found = self._files.get(scope["path"])
        is_read = scope["method"] in ("GET", "HEAD")
        status = 405 if not is_read else 404 if found is None else 200
        if found is None or not is_read:
            found = _File(content_type="text/plain; charset=utf-8", body=b"not found\n")
        headers = [
            (b"content-type", found.content_type.encode()),
            (b"content-length", str(len(found.body)).encode()),
            (b"content-security-policy", _POLICY),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else found.body
        await send({"type": "http.response.body", "body": body})


def profile(authority: PrivateAuthority) -> bytes:
    """Return a configuration profile for Apple's devices, which holds the authority alone."""
    name = authority.certificate.subject.rfc4514_string().removeprefix("CN=")
    identity = f"quarterdeck.{authority.pin}"
    payload = {
        "PayloadType": "com.apple.security.root",
        "PayloadVersion": 1,
        "PayloadIdentifier": f"{identity}.root",
        "PayloadUUID": str(uuid.uuid5(_PROFILE_SPACE, f"{identity}.root")).upper(),
        "PayloadDisplayName": name,
        "PayloadCertificateFileName": "quarterdeck.crt",
        "PayloadContent": authority.der,
    }
    return plistlib.dumps(
        {
            "PayloadType": "Configuration",
            "PayloadVersion": 1,
            "PayloadIdentifier": identity,
            "PayloadUUID": str(uuid.uuid5(_PROFILE_SPACE, identity)).upper(),
            "PayloadDisplayName": name,
            "PayloadDescription": "Lets this device connect to your Quarterdeck hub. It is valid"
            " only for addresses on private networks.",
            "PayloadContent": [payload],
        }
    )


def _page(authority: PrivateAuthority, origin: str) -> str:
    fingerprint = pin_fingerprint(authority.pin)
    shown = "<br>".join(wrap(fingerprint, _FINGERPRINT_LINE))
    name = escape(authority.certificate.subject.rfc4514_string().removeprefix("CN="))
    replaced = {"NAME": name, "FINGERPRINT": shown, "ADDRESS": escape(origin)}
    page = _HTML
    for word, value in replaced.items():
        page = page.replace(f"[{word}]", value)
    return page


_HTML: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Trust this hub · Quarterdeck</title>
<style>
:root { color-scheme: light dark; --ink: #14202b; --dim: #4b5b69; --line: #c9d3dc; --page: #f6f8fa;
  --card: #fff; --main: #0b5cad }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eef4; --dim: #a9b8c6; --line: #34424f;
  --page: #10171e; --card: #18212a; --main: #7db8f5 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 24px 16px 48px; max-width: 640px; color: var(--ink);
  background: var(--page); font: 16px/1.5 system-ui, sans-serif }
h1 { font-size: 24px; margin: 0 0 8px } h2 { font-size: 18px; margin: 0 0 8px }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px;
  padding: 16px; margin: 16px 0 }
ol { margin: 0; padding-left: 22px } li { margin: 8px 0 }
a.button { display: block; text-align: center; padding: 12px; border-radius: 10px; font-weight: 600;
  border: 1px solid var(--main); color: var(--main); text-decoration: none }
code { font: 14px/1.6 ui-monospace, monospace; overflow-wrap: anywhere }
p { margin: 8px 0 } .dim { color: var(--dim) }
</style>
<h1>Trust this hub</h1>
<p>Your hub at <code>[ADDRESS]</code> has its own certificate. Install it on this device once, then
scan the pairing code in the terminal or on the page.</p>
<section>
<h2>iPhone and iPad</h2>
<ol>
<li><a class="button" href="/quarterdeck.mobileconfig">Download the profile</a></li>
<li>Open <b>Settings</b>, tap <b>Profile Downloaded</b>, then <b>Install</b>.</li>
<li>Open <b>Settings &rsaquo; General &rsaquo; About &rsaquo; Certificate Trust Settings</b> and
turn on <b>[NAME]</b>.</li>
</ol>
</section>
<section>
<h2>Android</h2>
<ol>
<li><a class="button" href="/quarterdeck.crt" download>Download the certificate</a></li>
<li>Open <b>Settings</b> and search for <b>CA certificate</b> (in <b>Security &rsaquo;
Encryption &amp; credentials &rsaquo; Install a certificate</b>).</li>
<li>Tap <b>CA certificate</b>, <b>Install anyway</b>, and choose <b>quarterdeck.crt</b>.</li>
</ol>
</section>
<section>
<h2>Compare the fingerprint</h2>
<p>The certificate's details on this device must show the same SHA-256 fingerprint as the terminal.
If they differ, do not install the certificate: someone on this network has changed this page.</p>
<p><code>[FINGERPRINT]</code></p>
</section>
<p class="dim">The certificate is valid only for addresses on private networks. To remove it later,
delete <b>[NAME]</b> in the same settings.</p>
</html>
"""

"""`admit`: accept or reject a request by its head alone. Pure.

A server on loopback can be reached by every web page that its user visits, and by every program on
the computer. The checks, in this order:

    size           431   few and short headers
    unambiguous    400   one Host, one Origin, one length; a normalized path
    Host           421   a name of this hub, with its port: no DNS rebinding
    Origin         403   if present, the origin of this hub; Sec-Fetch-Site must agree
    body           415   only JSON: a form on any page could send other types without a preflight

The result names the token or the proof, from Authorization or a subprotocol; `guard` checks it.
HTTP requests and WebSockets go through the same function. A token in the query string is ignored:
URLs end up in logs and histories. Cookies are ignored: browsers send them to every port of a host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from quarterdeck.http.origins import OWN_FETCHES, Site, bearer_token
from quarterdeck.hub.auth.request_signatures import PROOF_SCHEME, PROOF_SUBPROTOCOL

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 32 << 10
"""In total. Browsers send the cookies of every server on this host."""

SUBPROTOCOL: Final = "quarterdeck"
TOKEN_SUBPROTOCOL: Final = "quarterdeck.token."  # noqa: S105 - a prefix, no token

_ONCE: Final = frozenset(
    {
        b"host",
        b"origin",
        b"authorization",
        b"cookie",
        b"content-type",
        b"content-length",
        b"transfer-encoding",
        b"sec-fetch-site",
        b"sec-fetch-mode",
        b"sec-fetch-dest",
        b"upgrade",
        b"sec-websocket-key",
        b"sec-websocket-version",
    }
)
_VERSIONS: Final = frozenset({"1.0", "1.1", "2"})
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PAGE_FILES: Final = frozenset(
    {"/", "/manifest.webmanifest", "/sw.js", "/favicon.ico", "/favicon.svg"}
)
_PAGE_FOLDERS: Final = ("/assets/", "/icons/")
_PAIRING: Final = frozenset({("POST", "/api/pair"), ("POST", "/api/machines/join")})
_PUBLIC_CALLS: Final = frozenset(
    {
        ("GET", "/healthz"),
        ("HEAD", "/healthz"),
        ("GET", "/api/nonce"),
        *_PAIRING,
    }
)
# These ask for a token or a signature in a message of their own, and serve nothing before it.
_PUBLIC_SOCKETS: Final = frozenset({"/api/context", "/api/link", "/ws"})
# Empty and dot segments, a backslash, control characters, and what decodes to one of them.
_ODD_PATH: Final = re.compile(r"//|/\.{1,2}(/|$)|[\\\x00-\x1f\x7f]")
_ODD_RAW_PATH: Final = re.compile(rb"%(2f|5c|2e|00)", re.IGNORECASE)
_LENGTH: Final = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class Head:
    """A request without its body."""

    kind: Literal["http", "websocket"]
    method: str
    """GET for a WebSocket."""
    path: str
    """As the router will see it."""
    raw_path: bytes
    headers: Headers
    version: str = "1.1"


@dataclass(frozen=True, slots=True)
class Rejected:
    """The error response for a request."""

    status: int
    code: str
    message: str
    retry_seconds: int | None = None
    """Seconds until a retry may succeed; None: do not retry."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request whose head is valid; its token or proof is not checked yet."""

    site: Site
    token: str | None
    proof: str | None
    """What a browser signed, as it was sent."""
    is_public: bool
    """Served without a token."""
    is_pairing: bool
    """A new device, or a new machine, sends its code."""
    is_page: bool
    """A static file of the page; nothing in it is secret."""
    has_body: bool
    length: int | None
    """The declared length of the body."""


def admit(sites: Mapping[str, Site], head: Head) -> Accepted | Rejected:
    """Accept or reject one request."""
    if _is_too_large(head.headers):
        return Rejected(
            431, "quarterdeck/too-large", "too many headers, or headers too long; send fewer"
        )
    if head.version not in _VERSIONS:
        return _invalid("unsupported HTTP version; use HTTP/1.1")
    found: dict[bytes, str] = {}
    for name, value in head.headers:
        if name in found and name in _ONCE:
            return _invalid(f"duplicate header {name.decode()}; send it once")
        found.setdefault(name, value.decode("latin-1"))
    if b"host" not in found:
        return _invalid("missing Host header; send the address of this hub")
    site = sites.get(found[b"host"].lower())
    if site is None:
        return _misdirected(found[b"host"])
    return (
        _check_path(head)
        or _check_origin(head, found, site)
        or _check_body(head, found)
        or _accepted(head, found, site)
    )


def is_page_file(path: str) -> bool:
    return path in _PAGE_FILES or path.startswith(_PAGE_FOLDERS)


def _is_too_large(headers: Headers) -> bool:
    size = sum(len(name) + len(value) for name, value in headers)
    return len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES


def _check_path(head: Head) -> Rejected | None:
    is_normalized = (
        head.path.startswith("/")
        and _ODD_PATH.search(head.path) is None
        and _ODD_RAW_PATH.search(head.raw_path) is None
    )
    message = (
        "the path is not normalized; remove empty and dot segments, and send an id that has a"
        " slash, a control character or only dots as ~ followed by its base64url"
    )
    return None if is_normalized else _invalid(message)


def _check_origin(head: Head, found: Mapping[bytes, str], site: Site) -> Rejected | None:
    origin = found.get(b"origin")
    if origin is not None and origin != site.origin:
        return _forbidden(f"pages from {_shown(origin)} cannot use this hub")
    if found.get(b"sec-fetch-site", "none") in OWN_FETCHES:
        return None
    # A link on another site may lead here: it opens our page, which then sends its own requests.
    is_followed_link = (
        head.kind == "http"
        and head.method == "GET"
        and head.path == "/"
        and found.get(b"sec-fetch-mode") == "navigate"
        and found.get(b"sec-fetch-dest") == "document"
    )
    return None if is_followed_link else _forbidden("pages from other sites cannot use this hub")


def _check_body(head: Head, found: Mapping[bytes, str]) -> Rejected | None:
    length = found.get(b"content-length")
    if length is not None and b"transfer-encoding" in found:
        return _invalid("both Content-Length and Transfer-Encoding; send only Content-Length")
    if length is not None and not _LENGTH.fullmatch(length):
        return _invalid("Content-Length is not a number")
    has_body = _has_body(found)
    if has_body and (head.method in _SAFE or head.kind == "websocket"):
        return _invalid(f"a {head.method} request cannot have a body")
    content_type = found.get(b"content-type")
    if head.method not in _SAFE and (has_body or content_type) and not _is_json(content_type):
        message = "the body must be JSON; send Content-Type: application/json"
        return Rejected(415, "quarterdeck/invalid", message)
    return None


def _accepted(head: Head, found: Mapping[bytes, str], site: Site) -> Accepted:
    is_http = head.kind == "http"
    is_page = is_http and head.method in ("GET", "HEAD") and is_page_file(head.path)
    is_call = is_http and (head.method, head.path) in _PUBLIC_CALLS
    is_socket = not is_http and head.path in _PUBLIC_SOCKETS
    token, proof = _credentials(head, found)
    length = found.get(b"content-length")
    return Accepted(
        site=site,
        token=token,
        proof=proof,
        is_public=is_page or is_call or is_socket,
        is_pairing=is_http and (head.method, head.path) in _PAIRING,
        is_page=is_page,
        has_body=_has_body(found),
        length=None if length is None else int(length),
    )


def _credentials(head: Head, found: Mapping[bytes, str]) -> tuple[str | None, str | None]:
    """Return the token and the proof; at most one of them is sent."""
    authorization = found.get(b"authorization")
    if authorization is not None:
        scheme, _, proof = authorization.partition(" ")
        if scheme.lower() == PROOF_SCHEME.lower():
            return None, proof.strip()
        return bearer_token(authorization), None
    if head.kind == "websocket":
        for offered in subprotocols(head.headers):
            if offered.startswith(TOKEN_SUBPROTOCOL):
                return offered.removeprefix(TOKEN_SUBPROTOCOL), None
            if offered.startswith(PROOF_SUBPROTOCOL):
                return None, offered.removeprefix(PROOF_SUBPROTOCOL)
    return None, None


_CREDENTIAL_LINE: Final = re.compile(
    rb"\r\n(?:authorization|sec-websocket-protocol):([^\r\n]*)", re.IGNORECASE
)
_CREDENTIAL: Final = re.compile(
    rb"(?:^[ \t]*bearer +|quarterdeck\.token\.)(?P<token>qd_[A-Za-z0-9_-]+)"
    rb"|(?:^[ \t]*quarterdeckkey +|quarterdeck\.proof\.)(?P<device>[A-Za-z0-9_-]+)\.",
    re.IGNORECASE,
)


def named_credentials(head: bytes) -> tuple[str | None, str | None]:
    """Return the token, or the device of the proof, that the bytes of a head name.

    For the order in which connections are served; `admit` reads the parsed head.
    """
    for line in _CREDENTIAL_LINE.findall(head):
        found = _CREDENTIAL.search(line)
        if found is not None:
            token, device_id = found["token"], found["device"]
            return (
                None if token is None else token.decode(),
                None if device_id is None else device_id.decode(),
            )
    return None, None


def subprotocols(headers: Headers) -> list[str]:
    """Return the subprotocols that a WebSocket offers."""
    lines = (value.decode("latin-1") for name, value in headers if name == _PROTOCOL_HEADER)
    return [offered.strip() for line in lines for offered in line.split(",")]


_PROTOCOL_HEADER: Final = b"sec-websocket-protocol"


def without_credentials(offered: Iterable[str]) -> list[str]:
    """Return the subprotocols that carry no token and no proof."""
    credentials = (TOKEN_SUBPROTOCOL, PROOF_SUBPROTOCOL)
    return [each for each in offered if each and not each.startswith(credentials)]


def without_secrets(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers for handlers, which know the device and need no token."""
    kept = [each for each in headers if each[0] not in (b"authorization", b"cookie")]
    offered = without_credentials(subprotocols(headers))
    kept = [each for each in kept if each[0] != _PROTOCOL_HEADER]
    if offered:
        kept.append((_PROTOCOL_HEADER, ", ".join(offered).encode("latin-1")))
    return kept


def _has_body(found: Mapping[bytes, str]) -> bool:
    return b"transfer-encoding" in found or found.get(b"content-length", "0").strip("0") != ""


def _is_json(content_type: str | None) -> bool:
    essence, _, parameter = (content_type or "").lower().partition(";")
    is_utf8 = parameter.replace(" ", "").replace('"', "") in ("", "charset=utf-8")
    return essence.strip() == "application/json" and is_utf8


def _misdirected(host: str) -> Rejected:
    message = (
        f"{_shown(host)} is not a name of this hub; allow it: quarterdeck up --allow-host NAME"
    )
    return Rejected(421, "quarterdeck/forbidden", message)


def _invalid(message: str) -> Rejected:
    return Rejected(400, "quarterdeck/invalid", message)


def _forbidden(message: str) -> Rejected:
    return Rejected(403, "quarterdeck/forbidden", message)


def _shown(text: str) -> str:
    """Return text of the client, escaped and shortened for an error message."""
    return ascii(text[:100])

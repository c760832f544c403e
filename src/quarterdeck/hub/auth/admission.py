"""Who may come in and as what, decided from the head of a request alone. Pure.

A server on this computer is within reach of every web page its user visits, and of every other
program. What a request must be, in the order it is checked:

    small               431   few and short headers
    unambiguous         400   one Host, one Origin, one of each; a plain path; one length
    meant for us        421   Host is a name of ours, port included: no DNS rebinding
    not of a stranger   403   Origin, if any, is the very site asked; Sec-Fetch-Site agrees
    JSON                415   a body of another type could come from a form of any page
    authorised          401   the token, from Authorization, a subprotocol or our cookie
    meant by its page   403   a cookie is enough to read; to do anything Origin must be there too

HTTP and WebSockets go through the same function. A token in the query string is never looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from quarterdeck.http.origins import OWN_FETCHES, Site, bearer_token

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 32 << 10
"""Of all together: cookies of everything else on this host come with ours."""

SUBPROTOCOL: Final = "quarterdeck"
TOKEN_SUBPROTOCOL: Final = "quarterdeck.token."  # noqa: S105 - what comes before it

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
_PUBLIC_CALLS: Final = frozenset({("GET", "/healthz"), ("HEAD", "/healthz"), ("POST", "/api/pair")})
# These ask a stranger for a token by a message of their own, and serve nobody before.
_PUBLIC_SOCKETS: Final = frozenset({"/api/context", "/ws"})
# Empty and dot segments, a backslash, control characters, and what decodes to one of them.
_CROOKED_PATH: Final = re.compile(r"//|/\.{1,2}(/|$)|[\\\x00-\x1f\x7f]")
_CROOKED_RAW: Final = re.compile(rb"%(2f|5c|2e|00)", re.IGNORECASE)
_LENGTH: Final = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class Head:
    """What a request says before its body."""

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
    """What a request gets instead of an answer."""

    status: int
    code: str
    message: str
    retry_seconds: int | None = None
    """After which it may be tried again."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request that may go on to be authenticated."""

    site: Site
    token: str | None
    is_public: bool
    """Also for those without a token."""
    is_page: bool
    """One of the static files of the user interface: nothing in them is secret."""
    has_body: bool
    length: int | None
    """The length of the body, if it is said."""


def admit(sites: Mapping[str, Site], head: Head) -> Accepted | Rejected:
    """Decide about one request."""
    if _is_too_large(head.headers):
        return Rejected(431, "quarterdeck/too-large", "the headers are too many or too long")
    if head.version not in _VERSIONS:
        return _invalid("this is not HTTP as we speak it; use HTTP/1.1")
    found: dict[bytes, str] = {}
    for name, value in head.headers:
        if name in found and name in _ONCE:
            return _invalid(f"the header {name.decode()} is there twice; send it once")
        found.setdefault(name, value.decode("latin-1"))
    if b"host" not in found:
        return _invalid("there is no Host header; say whom you want to reach")
    site = sites.get(found[b"host"].lower())
    if site is None:
        return _misdirected(found[b"host"])
    return (
        _crooked(head)
        or _foreign(head, found, site)
        or _unreadable(head, found)
        or _unmeant(head, found, site)
        or _admitted(head, found, site)
    )


def is_page_file(path: str) -> bool:
    return path in _PAGE_FILES or path.startswith(_PAGE_FOLDERS)


def _is_too_large(headers: Headers) -> bool:
    size = sum(len(name) + len(value) for name, value in headers)
    return len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES


def _crooked(head: Head) -> Rejected | None:
    is_straight = (
        head.path.startswith("/")
        and _CROOKED_PATH.search(head.path) is None
        and _CROOKED_RAW.search(head.raw_path) is None
    )
    message = (
        "the path is not plain; send it without detours, and an id with a slash, dots alone or a"
        " control character as ~ and its base64url"
    )
    return None if is_straight else _invalid(message)


def _foreign(head: Head, found: Mapping[bytes, str], site: Site) -> Rejected | None:
    origin = found.get(b"origin")
    if origin is not None and origin != site.origin:
        return _forbidden(f"pages of {_shown(origin)} may not use this hub")
    if found.get(b"sec-fetch-site", "none") in OWN_FETCHES:
        return None
    # Following a link from another site is fine: it shows our page, which then asks for itself.
    is_followed_link = (
        head.kind == "http"
        and head.method == "GET"
        and head.path == "/"
        and found.get(b"sec-fetch-mode") == "navigate"
        and found.get(b"sec-fetch-dest") == "document"
    )
    return None if is_followed_link else _forbidden("pages of other sites may not use this hub")


def _unreadable(head: Head, found: Mapping[bytes, str]) -> Rejected | None:
    """Check what is said about the body."""
    length = found.get(b"content-length")
    if length is not None and b"transfer-encoding" in found:
        return _invalid("the length is said in two ways; send Content-Length alone")
    if length is not None and not _LENGTH.fullmatch(length):
        return _invalid("the Content-Length is not a number")
    has_body = _has_body(found)
    if has_body and (head.method in _SAFE or head.kind == "websocket"):
        return _invalid(f"a {head.method} request has no body here")
    content_type = found.get(b"content-type")
    if head.method not in _SAFE and (has_body or content_type) and not _is_json(content_type):
        message = "bodies are JSON here: send Content-Type: application/json"
        return Rejected(415, "quarterdeck/invalid", message)
    return None


def _unmeant(head: Head, found: Mapping[bytes, str], site: Site) -> Rejected | None:
    is_doing = head.method not in _SAFE or head.kind == "websocket"
    is_by_cookie = _explicit_token(head, found) is None and _cookie(found, site) is not None
    if is_doing and is_by_cookie and b"origin" not in found:
        return _forbidden("a cookie alone does not allow this; send Origin, or a token as a header")
    return None


def _admitted(head: Head, found: Mapping[bytes, str], site: Site) -> Accepted:
    is_http = head.kind == "http"
    is_page = is_http and head.method in ("GET", "HEAD") and is_page_file(head.path)
    is_call = is_http and (head.method, head.path) in _PUBLIC_CALLS
    is_socket = not is_http and head.path in _PUBLIC_SOCKETS
    explicit = _explicit_token(head, found)
    length = found.get(b"content-length")
    return Accepted(
        site=site,
        token=_cookie(found, site) if explicit is None else explicit,
        is_public=is_page or is_call or is_socket,
        is_page=is_page,
        has_body=_has_body(found),
        length=None if length is None else int(length),
    )


def _explicit_token(head: Head, found: Mapping[bytes, str]) -> str | None:
    """Return a token that no browser adds by itself."""
    authorization = found.get(b"authorization")
    if authorization is not None:
        return bearer_token(authorization)
    if head.kind == "websocket":
        for offered in subprotocols(head.headers):
            if offered.startswith(TOKEN_SUBPROTOCOL):
                return offered.removeprefix(TOKEN_SUBPROTOCOL)
    return None


def subprotocols(headers: Headers) -> list[str]:
    """Return the subprotocols that a WebSocket offers."""
    lines = (value.decode("latin-1") for name, value in headers if name == _PROTOCOL_HEADER)
    return [offered.strip() for line in lines for offered in line.split(",")]


_PROTOCOL_HEADER: Final = b"sec-websocket-protocol"


def without_secrets(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return headers for handlers, which need to know the device and not its token."""
    kept = [each for each in headers if each[0] not in (b"authorization", b"cookie")]
    offered = [
        each for each in subprotocols(headers) if not each.startswith(TOKEN_SUBPROTOCOL) and each
    ]
    kept = [each for each in kept if each[0] != _PROTOCOL_HEADER]
    if offered:
        kept.append((_PROTOCOL_HEADER, ", ".join(offered).encode("latin-1")))
    return kept


def _cookie(found: Mapping[bytes, str], site: Site) -> str | None:
    """Return our cookie; two of them are none: somebody else planted one."""
    values = [
        value.strip()
        for name, equals, value in (
            each.partition("=") for each in found.get(b"cookie", "").split(";")
        )
        if equals and name.strip() == site.cookie
    ]
    return values[0] if len(values) == 1 else None


def _has_body(found: Mapping[bytes, str]) -> bool:
    return b"transfer-encoding" in found or found.get(b"content-length", "0").strip("0") != ""


def _is_json(content_type: str | None) -> bool:
    essence, _, parameter = (content_type or "").lower().partition(";")
    is_utf8 = parameter.replace(" ", "").replace('"', "") in ("", "charset=utf-8")
    return essence.strip() == "application/json" and is_utf8


def _misdirected(host: str) -> Rejected:
    message = f"this hub is not called {_shown(host)}; start it with --allow-host to allow a name"
    return Rejected(421, "quarterdeck/forbidden", message)


def _invalid(message: str) -> Rejected:
    return Rejected(400, "quarterdeck/invalid", message)


def _forbidden(message: str) -> Rejected:
    return Rejected(403, "quarterdeck/forbidden", message)


def _shown(text: str) -> str:
    """Return something of the other side, fit for a sentence."""
    return ascii(text[:100])

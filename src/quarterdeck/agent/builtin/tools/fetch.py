"""The tool `fetch`: reads one web page as text, without access to this machine and its network.

A name is resolved once, every address it has is checked (`http.public_addresses`), and the
connection is made to a checked address: a name that resolves to something else a moment later gains
nothing. A redirect inside the same origin is followed after the same check; one to another origin
is reported, not followed, because the user allowed this origin only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.message import Message
from html.parser import HTMLParser
from typing import Annotated
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit

import anyio
from msgspec import Meta, Struct
from typing_extensions import override

from quarterdeck._version import __version__
from quarterdeck.agent.builtin.tools.base import (
    Action,
    Outcome,
    Progress,
    SessionGrant,
    ToolScope,
    define_tool,
    shortened,
    text_content,
)
from quarterdeck.errors import ToolFailed
from quarterdeck.http.client import DEFAULT_PORTS, OutgoingRequest, RequestFailed, send_request
from quarterdeck.http.public_addresses import (
    AddressNotPublic,
    Resolver,
    resolve,
    resolve_in_thread,
    resolve_public,
)

MAX_BYTES = 2 * 1024 * 1024
_SECONDS = 30.0  # for all of it
_QUIET_SECONDS = 10.0  # for one read
_REDIRECTS = 5
_HEADERS = {
    "user-agent": f"quarterdeck/{__version__}",
    "accept": "text/html, text/plain, application/json, text/*;q=0.9, */*;q=0.1",
}


@dataclass(frozen=True)
class Page:
    url: str
    status: int
    media_type: str
    charset: str | None
    content: bytes
    is_cut: bool


@dataclass(frozen=True)
class Redirect:
    """A redirect to another origin, which is not allowed yet."""

    url: str


class Fetcher:
    """Fetches pages; stateless, so one is enough."""

    def __init__(self, *, allows_private: bool, resolve: Resolver = resolve) -> None:
        self._allows_private = allows_private
        self._resolve = resolve

    async def fetch(self, url: str) -> Page | Redirect:
        """Fetch a page.

        Raises:
            ToolFailed: if it may not be fetched, or could not be.
        """
        try:
            with anyio.fail_after(_SECONDS):
                return await self._follow(url)
        except TimeoutError as error:
            raise ToolFailed(f"{url} took longer than {_SECONDS:g} s") from error

    async def _follow(self, url: str) -> Page | Redirect:
        origin = origin_of(url)
        for _ in range(_REDIRECTS + 1):
            try:
                found = await self._get(url)
            except (OSError, RequestFailed, ValueError) as error:
                raise ToolFailed(f"{url} could not be fetched: {error}") from error
            if isinstance(found, Page):
                return found
            if not _is_same_site(origin, origin_of(found.url)):
                return found
            url = found.url
        raise ToolFailed(f"{url} redirects for ever")

    async def _get(self, url: str) -> Page | Redirect:
        addresses = await self._addresses(urlsplit(url))
        request = OutgoingRequest(method="GET", url=url, headers=_HEADERS)
        response = await send_request(
            request, addresses, max_bytes=MAX_BYTES, seconds=_QUIET_SECONDS
        )
        location = response.headers.get("location")
        if location and 300 <= response.status < 400:
            return Redirect(_checked(urljoin(url, location)))
        kind = Message()
        kind["content-type"] = response.headers.get("content-type", "text/plain")
        return Page(
            url,
            response.status,
            kind.get_content_type(),
            kind.get_content_charset(),
            response.body,
            response.is_truncated,
        )

    async def _addresses(self, parts: SplitResult) -> list[str]:
        host = parts.hostname or ""
        find = resolve_in_thread if self._allows_private else resolve_public
        try:
            addresses = await find(host, _port(parts), self._resolve)
        except AddressNotPublic as error:
            sentence = f"{host} is an address of this machine or its network, which is not allowed"
            raise ToolFailed(
                f"{sentence}; set fetch_private_addresses in the settings to allow it"
            ) from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise ToolFailed(f"{host} cannot be resolved: {reason}") from error
        if not addresses:
            raise ToolFailed(f"{host} has no address; check the name")
        return addresses


def checked_url(url: str) -> str:
    """Return a URL that may be fetched.

    Raises:
        ToolFailed: if it is no address of the web.
    """
    return _checked(url if "://" in url else f"https://{url}")


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ToolFailed(f"{url} is no address: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolFailed(f"{url} cannot be fetched; only http and https addresses can")
    if parts.username is not None or parts.password is not None:
        raise ToolFailed("an address with a name or password in it is not fetched")
    if any(ord(character) <= 32 for character in url):
        raise ToolFailed("an address with spaces or control characters is not fetched")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    where = host if port is None else f"{host}:{port}"
    return urlunsplit((parts.scheme, where, _quoted(parts.path), _quoted(parts.query), ""))


def _quoted(text: str) -> str:
    return "".join(c if c.isascii() else "".join(f"%{b:02X}" for b in c.encode()) for c in text)


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}:{_port(parts)}"


def _is_same_site(first: str, second: str) -> bool:
    """Whether a redirect stays where it was allowed; from http to https it may go."""
    one, other = urlsplit(first), urlsplit(second)
    is_upgrade = (one.port, other.port) == (80, 443) and other.scheme == "https"
    return first == second or (one.hostname == other.hostname and is_upgrade)


def _port(parts: SplitResult) -> int:
    return parts.port or DEFAULT_PORTS[parts.scheme]


_TEXT = ("text/", "application/json", "application/xml", "application/javascript")
_BREAKS = {"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "section"}
_SILENT = {"script", "style", "noscript", "svg", "template", "head"}


class FetchArguments(Struct, forbid_unknown_fields=True):
    """Fetch a page of the web and read its text."""

    url: Annotated[str, Meta(description="http or https")]


async def _prepare_fetch(given: FetchArguments, scope: ToolScope) -> Action:
    url = checked_url(given.url.strip())
    allows_private = scope.setup.settings.fetch_private_addresses

    async def run(_progress: Progress) -> Outcome:
        found = await Fetcher(allows_private=allows_private).fetch(url)
        if isinstance(found, Redirect):
            sentence = f"{url} redirects to {found.url}, which is another site"
            return Outcome(f"{sentence}; fetch that address if you want it")
        return _outcome(found)

    origin = origin_of(url)
    words = f"Allow fetching from {origin} for this session"
    return Action(
        f"Fetch {url}",
        run,
        preview=(text_content(url),),
        grant=SessionGrant(f"fetch:{origin}", words),
    )


def _outcome(page: Page) -> Outcome:
    is_text = page.media_type.startswith(_TEXT) or page.media_type.endswith(("+json", "+xml"))
    if not is_text:
        raise ToolFailed(f"{page.url} is {page.media_type}, not text; it was not read")
    try:
        text = page.content.decode(page.charset or "utf-8", "replace")
    except LookupError:  # an unknown encoding
        text = page.content.decode(errors="replace")
    if page.media_type == "text/html":
        text = readable(text)
    if page.is_cut:
        text += f"\n[cut after {MAX_BYTES} bytes]"
    return Outcome(shortened(f"[status {page.status}]\n{text}"), is_error=page.status >= 400)


def readable(html: str) -> str:
    """Return the text of a page without scripts, with links as Markdown."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    text = re.sub(r"[ \t\r\f]+", " ", "".join(reader.pieces))
    return re.sub(r" ?\n[ \n]*\n ?", "\n\n", text).strip()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._silence = 0
        self._links: list[str | None] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silence += 1
        if tag in _BREAKS:
            self.pieces.append("\n")
        if tag == "a":
            target = dict(attrs).get("href")
            self._links.append(target)
            if target and not self._silence:
                self.pieces.append("[")

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT and self._silence:
            self._silence -= 1
        if tag in _BREAKS:
            self.pieces.append("\n")
        if tag == "a" and self._links:
            target = self._links.pop()
            if target and not self._silence:
                self.pieces.append(f"]({target})")

    @override
    def handle_data(self, data: str) -> None:
        if not self._silence:
            self.pieces.append(data)


FETCH = define_tool(
    "fetch", "fetch", FetchArguments, _prepare_fetch, location="elsewhere", asks=True
)

"""The tool `fetch`: read a web page as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Annotated

from msgspec import Meta, Struct
from typing_extensions import override

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
from quarterdeck.agent.builtin.web import MAX_BYTES, Fetcher, Page, Redirect, checked_url, origin_of
from quarterdeck.errors import ToolFailed

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

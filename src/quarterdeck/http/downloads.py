"""Downloads of files, on httpx: bounded, resumable, and never over an unprotected connection.

Proxies and certificates of the environment are used (`trust_env`): what is downloaded was chosen by
the hub's owner, and in many companies there is no other way out. Every address, also that of a
redirect, must be `https`, or `http` on this machine.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    import httpx

_SECONDS: Final = 60.0
"""Without any data, after which a download fails."""
_HOPS: Final = 5
_OK, _PARTIAL, _NOT_MODIFIED, _NOT_IN_RANGE = 200, 206, 304, 416
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

OnBytes: TypeAlias = Callable[[int, int | None], None]
"""Takes how many bytes are there, and how many there will be, if that is known."""


class DownloadFailed(Exception):
    """Nothing, or not all, was downloaded; `str()` is the reason."""


@dataclass(frozen=True, kw_only=True)
class Downloaded:
    is_modified: bool
    """False if what the caller has is up to date: then no file was written."""
    etag: str | None


def url_refusal(url: str) -> str | None:
    """Return why nothing is downloaded from an address, or None."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return "it is not a URL"
    if parts.scheme == "https" and host:
        return None
    if parts.scheme == "http" and _is_loopback(host):
        return None
    return "it is not an https URL"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def download(
    url: str,
    target: Path,
    *,
    max_bytes: int,
    etag: str | None = None,
    on_bytes: OnBytes = lambda done, total: None,
) -> Downloaded:
    """Download a file; what `target` has already is not downloaded again.

    With an `etag` the whole file is requested, if it has changed. A file that stays incomplete
    is kept for the next attempt. The caller verifies what it is.

    Raises:
        DownloadFailed: if it is not complete, too large, or at an unprotected address.
        OSError: if it cannot be written.
    """
    import httpx  # noqa: PLC0415 - takes longer to import than everything else a command needs

    headers = {"accept-encoding": "identity", "user-agent": "quarterdeck"}
    if etag is not None:
        headers["if-none-match"] = etag
    elif begun := _size_of(target):
        headers["range"] = f"bytes={begun}-"
    try:
        async with httpx.AsyncClient(timeout=_SECONDS, follow_redirects=False) as client:
            for _ in range(_HOPS):
                if (refusal := url_refusal(url)) is not None:
                    raise DownloadFailed(f"{_shown(url)}: {refusal}")
                async with client.stream("GET", url, headers=headers) as response:
                    if response.status_code in _REDIRECTS:
                        url = urljoin(url, response.headers.get("location", ""))
                        continue
                    return await _store(response, target, max_bytes, on_bytes)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        words = str(error) or type(error).__name__
        raise DownloadFailed(f"{_shown(url)} does not answer: {words}") from error
    raise DownloadFailed(f"{_shown(url)}: too many redirects")


async def _store(
    response: httpx.Response, target: Path, max_bytes: int, on_bytes: OnBytes
) -> Downloaded:
    status = response.status_code
    if status == _NOT_MODIFIED:
        return Downloaded(is_modified=False, etag=response.headers.get("etag"))
    if status == _NOT_IN_RANGE:  # it is complete, or another file
        return Downloaded(is_modified=True, etag=None)
    if status not in (_OK, _PARTIAL):
        raise DownloadFailed(f"{_shown(str(response.url))} answered with status {status}")
    done = _size_of(target) if status == _PARTIAL else 0
    total = _total(response, done)
    if (total or 0) > max_bytes:
        raise DownloadFailed(f"the file is larger than {max_bytes >> 20} MiB")
    with target.open("ab" if done else "wb") as file:
        async for part in response.aiter_raw():
            done += len(part)
            if done > max_bytes:
                raise DownloadFailed(f"the file is larger than {max_bytes >> 20} MiB")
            file.write(part)
            on_bytes(done, total)
    if total is not None and done < total:
        raise DownloadFailed(f"the connection ended after {done} of {total} bytes")
    return Downloaded(is_modified=True, etag=response.headers.get("etag"))


def _size_of(target: Path) -> int:
    try:
        return target.stat().st_size
    except OSError:
        return 0


def _total(response: httpx.Response, done: int) -> int | None:
    with suppress(KeyError, ValueError):
        return done + int(response.headers["content-length"])
    return None


def _shown(url: str) -> str:
    """Return an address without what may be a secret in it."""
    parts: Any = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"

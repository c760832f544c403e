"""An HTTP API of another program on this machine: calls with JSON, and a stream of events.

One client, and so a few kept connections, for as long as the program is followed. Proxies of the
environment are not used.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from quarterdeck.errors import ConnectionClosed, JsonInvalid
from quarterdeck.http.client import RequestFailed
from quarterdeck.http.event_parser import EventParser
from quarterdeck.http.remote_agent import network_reason
from quarterdeck.jsontext import decode_json, encode_json

if TYPE_CHECKING:
    import httpx

_SECONDS: Final = 10.0
_SILENT_SECONDS: Final = 45.0
"""After which a stream without any event counts as ended; servers send a sign of life earlier."""
_MOST_BYTES: Final = 64 << 20


class JsonApi:
    """Calls one server; `opened_api` opens it."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send a request; return the status, and the body or None if that is not JSON.

        Raises:
            RequestFailed: if there was no response.
        """
        import httpx  # noqa: PLC0415 - takes long to import, and few need it

        content = None if body is None else encode_json(body)
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            async with self._client.stream(
                method, path, content=content, headers=headers
            ) as response:
                received = bytearray()
                async for part in response.aiter_bytes():
                    received += part
                    if len(received) > _MOST_BYTES:
                        raise RequestFailed(f"it sent more than {_MOST_BYTES} bytes")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise RequestFailed(network_reason(error)) from error
        return response.status_code, _decoded(bytes(received))

    async def read_events(self, path: str, on_event: Callable[[Any], None]) -> None:
        """Call `on_event` with each event of a stream that is JSON, until the stream ends.

        Raises:
            RequestFailed: if there is no such stream, or it broke.
        """
        import httpx  # noqa: PLC0415

        timeout = httpx.Timeout(_SECONDS, read=_SILENT_SECONDS)
        parser = EventParser(_MOST_BYTES)
        try:
            async with self._client.stream("GET", path, timeout=timeout) as response:
                if response.status_code != 200:
                    raise RequestFailed(f"it answered with status {response.status_code}")
                async for received in response.aiter_bytes():
                    for event in parser.feed(received):
                        decoded = _decoded(event.data)
                        if decoded is not None:
                            on_event(decoded)
        except (httpx.HTTPError, ConnectionClosed) as error:
            raise RequestFailed(network_reason(error)) from error


@asynccontextmanager
async def opened_api(
    url: str, *, user: str = "", password: str = "", headers: Mapping[str, str] | None = None
) -> AsyncIterator[JsonApi]:
    """Open the API at a URL; with a password, it is sent with every request (HTTP Basic)."""
    import httpx  # noqa: PLC0415

    transport = httpx.AsyncHTTPTransport(trust_env=False, verify=False)
    auth = httpx.BasicAuth(user, password) if password else None
    async with httpx.AsyncClient(
        base_url=url,
        transport=transport,
        trust_env=False,
        timeout=_SECONDS,
        auth=auth,
        headers=dict(headers or {}),
    ) as client:
        yield JsonApi(client)


def _decoded(data: bytes) -> Any:
    try:
        return decode_json(data)
    except JsonInvalid:
        return None

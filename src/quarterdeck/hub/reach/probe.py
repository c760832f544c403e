"""Whether an address leads to this hub, tried as a phone would: by TLS, with the name in it.

The hub asks the server behind the address to sign a random challenge (`GET /api/nonce`), as
browsers do, and checks the signature with its own key. Another server, a captive portal or a hub of
another user cannot make it, and a hub that does not accept the name answers 421.

What cannot be tried from here is whether a firewall lets the phone through.
"""

from __future__ import annotations

import ipaddress
import secrets
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import anyio

from quarterdeck.errors import JsonInvalid
from quarterdeck.http.client import DEFAULT_PORTS, OutgoingRequest, RequestFailed, send_request
from quarterdeck.http.origins import is_loopback
from quarterdeck.http.public_addresses import resolve_in_thread
from quarterdeck.hub.auth.device_keys import HubKey
from quarterdeck.hub.auth.request_signatures import NonceAndTime
from quarterdeck.hub.reach.ways import Outcome, Target
from quarterdeck.jsontext import decode_json

SECONDS: Final = 8.0
_ANSWER_BYTES: Final = 4_096

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]


async def try_target(
    target: Target,
    key: HubKey,
    *,
    context: ssl.SSLContext | None = None,
    resolve: Resolve = resolve_in_thread,
) -> Outcome:
    """Return whether a target leads to the hub with this key.

    `context` decides which certificates are accepted: by default those that the system trusts.
    """
    try:
        with anyio.fail_after(SECONDS):
            return await _try(target, key, context, resolve)
    except TimeoutError:
        return Outcome(problem="no answer in time")


async def _try(
    target: Target, key: HubKey, context: ssl.SSLContext | None, resolve: Resolve
) -> Outcome:
    parts = urlsplit(target.origin)
    host = parts.hostname or ""
    if parts.scheme != "https":
        return Outcome(problem="it has no TLS")
    addresses: Sequence[str] = target.leads_to
    if not addresses:
        try:
            addresses = await resolve(host, parts.port or DEFAULT_PORTS[parts.scheme])
        except OSError:
            return Outcome(problem="its name cannot be resolved")
    reachable = [each for each in addresses if not _is_of_this_computer_only(each)]
    if not reachable:
        return Outcome(problem="it resolves to this computer only")
    challenge = secrets.token_urlsafe(32)
    request = OutgoingRequest(method="GET", url=f"{target.origin}/api/nonce?challenge={challenge}")
    try:
        response = await send_request(
            request, reachable, max_bytes=_ANSWER_BYTES, seconds=SECONDS, context=context
        )
    except RequestFailed as error:
        return Outcome(problem=_failure_words(str(error)))
    if response.status != 200:
        return Outcome(problem=f"another server answers there (status {response.status})")
    return _judged(response.body, challenge, target.origin, key)


def _judged(body: bytes, challenge: str, origin: str, key: HubKey) -> Outcome:
    try:
        answer: Any = decode_json(body)
        given = NonceAndTime(str(answer["nonce"]), int(answer["time"]))
        signature = str(answer["signature"])
    except (JsonInvalid, KeyError, TypeError, ValueError):
        return Outcome(problem="another server answers there")
    if not key.is_own_answer(signature, challenge, origin, given):
        return Outcome(problem="another hub answers there, or this one under another name")
    return Outcome()


def _is_of_this_computer_only(address: str) -> bool:
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return is_loopback(str(ip)) or ip.is_unspecified


def _failure_words(reason: str) -> str:
    """Return an error of TLS or of a connection as part of a sentence."""
    lower = reason.lower()
    if "hostname mismatch" in lower or "ip address mismatch" in lower:
        return "its certificate is for another name"
    if "self-signed" in lower or "unable to get local issuer" in lower:
        return "its certificate was issued by an authority that phones do not know"
    if "expired" in lower:
        return "its certificate has expired"
    if "connection attempts failed" in lower or "refused" in lower:
        return "nothing responds there"
    if "certificate" in lower:
        return f"its certificate is not valid ({reason})"
    return reason

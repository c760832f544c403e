"""How a hub on another machine is reached: its certificate, a proxy, and what can be wrong."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from quarterdeck.http.origins import is_loopback

_bypasses: Final[Callable[[str, Mapping[str, str]], Any]] = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]  # not in typeshed


def tls_context(pin: str | None) -> ssl.SSLContext:
    """Return the context for a hub: its pinned certificate, or the system's authorities."""
    if pin is None:
        return ssl.create_default_context()
    from quarterdeck.http.certificate_pins import pinned_context  # noqa: PLC0415 - seldom used

    return pinned_context(pin)


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment names for a URL, as most programs read it."""
    proxies: dict[str, str] = {}
    for name, value in sorted(environ.items()):  # lower case, which wins, comes last
        if name.lower().endswith("_proxy") and value:
            proxies[name.lower().removesuffix("_proxy")] = value
    parts = urlsplit(url)
    host = parts.hostname or ""
    found = proxies.get(parts.scheme) or proxies.get("all")
    if found is None or is_loopback(host) or _bypasses(host, proxies):
        return None
    return found if "://" in found else f"http://{found}"


def network_problem(error: OSError) -> str:
    """Return in one sentence why a hub cannot be reached."""
    match error:
        case ssl.SSLCertVerificationError():
            return certificate_problem(error)
        case ssl.SSLError():
            return f"TLS failed ({tls_reason(error)}); check the address"
        case TimeoutError():
            return "it did not respond in time"
        case _:
            return f"it cannot be reached ({error.strerror or error})"


def tls_reason(error: ssl.SSLError) -> str:
    """Return what OpenSSL says, in words."""
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return str(reason).replace("_", " ").lower()


_NOT_YET, _EXPIRED, _HOST_MISMATCH = 9, 10, 62  # X509_V_ERR_… of OpenSSL


def certificate_problem(error: ssl.SSLCertVerificationError) -> str:
    """Return in one sentence why a certificate is not accepted."""
    code = getattr(error, "verify_code", 0)
    words = str(getattr(error, "verify_message", "") or error.strerror or error).rstrip(".")
    if code in (_NOT_YET, _EXPIRED):
        return f"its certificate is not valid now ({words}); check the clocks of both machines"
    if code == _HOST_MISMATCH:
        return f"its certificate is for another name ({words}); use the name that it is for"
    return f"its certificate is not trusted ({words})"

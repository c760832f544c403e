"""How a hub on another machine is reached: proxies of the environment, and what can be wrong."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from quarterdeck.runner.link.handshake import origin_of
from quarterdeck.runner.link.hub_address import network_problem, proxy_for

HUB = "https://hub.example:7272"


@pytest.mark.parametrize(
    ("url", "environ", "proxy"),
    [
        (HUB, {}, None),
        (HUB, {"https_proxy": "http://p:3128"}, "http://p:3128"),
        (HUB, {"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        (HUB, {"HTTPS_PROXY": "http://upper:1", "https_proxy": "http://lower:1"}, "http://lower:1"),
        (HUB, {"https_proxy": "p:3128"}, "http://p:3128"),
        (HUB, {"http_proxy": "http://p:3128"}, None),
        (HUB, {"all_proxy": "socks5h://p:1080"}, "socks5h://p:1080"),
        (HUB, {"https_proxy": "http://p", "no_proxy": "hub.example"}, None),
        (HUB, {"https_proxy": "http://p", "no_proxy": ".example"}, None),
        (HUB, {"https_proxy": "http://p", "no_proxy": "*"}, None),
        (HUB, {"https_proxy": "http://p", "no_proxy": "other.example"}, "http://p"),
        (HUB, {"https_proxy": ""}, None),
        ("https://127.0.0.1:7272", {"https_proxy": "http://p"}, None),
        ("http://localhost:7272", {"http_proxy": "http://p"}, None),
    ],
)
def test_the_proxy_is_the_one_that_other_programs_use(
    url: str, environ: dict[str, str], proxy: str | None
) -> None:
    assert proxy_for(url, environ) == proxy


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Hub.Example:7272/", HUB),
        ("https://hub.example:443", "https://hub.example"),
        ("http://127.0.0.1:80/x?y#z", "http://127.0.0.1"),
        ("https://[::1]:7272", "https://[::1]:7272"),
    ],
)
def test_an_origin_is_spelt_as_the_hub_spells_it(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "url",
    ["", "hub", "ftp://hub", "https://", "https://user@hub", "https://hub:port", "https://[x"],
)
def test_what_is_no_address_of_a_hub_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - also what the standard library raises
        origin_of(url)


def _certificate_error(code: int, words: str) -> ssl.SSLCertVerificationError:
    error: Any = ssl.SSLCertVerificationError(1, f"certificate verify failed: {words}")
    error.verify_code, error.verify_message = code, words
    found: ssl.SSLCertVerificationError = error
    return found


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (_certificate_error(10, "certificate has expired"), "check the clocks of both machines"),
        (_certificate_error(9, "not yet valid"), "check the clocks of both machines"),
        (_certificate_error(62, "IP address mismatch"), "for another name"),
        (
            _certificate_error(18, "self-signed certificate"),
            "not trusted (self-signed certificate)",
        ),
        (ssl.SSLError(1, "wrong version number"), "TLS failed"),
        (TimeoutError(), "did not respond in time"),
        (
            ConnectionRefusedError(111, "Connection refused"),
            "cannot be reached (Connection refused)",
        ),
    ],
)
def test_a_failure_of_the_network_is_a_sentence(error: OSError, words: str) -> None:
    assert words in network_problem(error)

"""`hub.reach.tailscale`: what the program prints, and a program that prints it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.hub.reach.tailscale import (
    TailscaleRefused,
    ask_tailscale,
    read_served,
    read_status,
    tailscale_certificate,
)
from tests.hub.reach.fake_tailscale import NAME, FakeTailscale, serve_status, status

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


@pytest.fixture
def program(tmp_path: Path) -> FakeTailscale:
    return FakeTailscale(tmp_path / "bin")


def path_of(program: FakeTailscale) -> dict[str, str]:
    return {"PATH": str(program.folder)}


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


def test_a_connected_computer_has_a_name_addresses_and_certificates() -> None:
    found = read_status(encoded(status()))
    assert (found.state, found.name, found.certified) == ("running", NAME, (NAME,))
    assert found.addresses == ("100.101.102.103", "fd7a:115c:a1e0::8a01:1")


@pytest.mark.parametrize(
    ("backend", "state"),
    [
        ("NoState", "stopped"),
        ("Stopped", "stopped"),
        ("Starting", "stopped"),
        ("NeedsLogin", "signed-out"),
        ("NeedsMachineAuth", "signed-out"),
        ("SomethingNew", "unreadable"),
    ],
)
def test_every_state_of_the_daemon_is_understood(backend: str, state: str) -> None:
    assert read_status(encoded(status(BackendState=backend))).state == state


def test_a_tailnet_without_https_has_no_certified_names() -> None:
    assert read_status(encoded(status(CertDomains=None))).certified == ()


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"{", b"\xff"])
def test_what_is_no_status_is_unreadable(text: bytes) -> None:
    assert read_status(text).state == "unreadable"
    assert read_served(text) == {}


@given(st.dictionaries(st.sampled_from([*status(), "TCP", "Web"]), JSON))
def test_no_document_raises(document: dict[str, Any]) -> None:
    read_status(encoded(document))
    read_served(encoded(document))


def test_sites_with_tls_that_are_passed_on_whole_are_found() -> None:
    found = read_served(encoded(serve_status("http://127.0.0.1:7272")))
    assert found == {f"{NAME}:443": "http://127.0.0.1:7272"}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"TCP": {"80": {"HTTP": True}}, "Web": {f"{NAME}:80": {"Handlers": {"/": {"Proxy": "x"}}}}},
        {
            "TCP": {"443": {"HTTPS": True}},
            "Web": {f"{NAME}:443": {"Handlers": {"/": {"Path": "/"}}}},
        },
        {
            "TCP": {"443": {"HTTPS": True}},
            "Web": {f"{NAME}:443": {"Handlers": {"/app": {"Proxy": "http://127.0.0.1:7272"}}}},
        },
        {"TCP": {"443": {"TCPForward": "127.0.0.1:7272"}}},
    ],
)
def test_other_things_that_are_served_are_not_taken_for_the_hub(document: Any) -> None:
    assert read_served(encoded(document)) == {}


async def test_a_computer_without_the_program_has_no_tailscale(tmp_path: Path) -> None:
    assert (await ask_tailscale({"PATH": str(tmp_path)})).state == "absent"


async def test_the_program_is_asked_for_its_state_and_what_it_serves(
    program: FakeTailscale,
) -> None:
    program.answer("status", status())
    program.answer("serve-status", serve_status("http://127.0.0.1:7272"))
    found = await ask_tailscale(path_of(program))
    assert (found.state, found.served_at(7272)) == ("running", f"{NAME}:443")
    assert found.served_at(7273) is None
    assert program.calls == ["status --json", "serve status --json"]


async def test_a_daemon_that_does_not_run_is_reported_with_what_the_program_said(
    program: FakeTailscale,
) -> None:
    said = "failed to connect to local tailscaled; it doesn't appear to be running"
    program.answer("status", "", err=said, status=1)
    found = await ask_tailscale(path_of(program))
    assert (found.state, found.problem) == ("unreadable", said)


async def test_a_certificate_is_read_from_standard_output(program: FakeTailscale) -> None:
    pem = "-----BEGIN CERTIFICATE-----\nx\n-----BEGIN EC PRIVATE KEY-----\ny\n"
    program.answer_certificate(pem)
    assert (await tailscale_certificate(path_of(program), NAME)).decode() == pem
    assert program.calls == [f"cert --cert-file=- --key-file=- {NAME}"]


@pytest.mark.parametrize(
    ("out", "err", "ended"),
    [
        ("", "Access denied: cert access denied", 1),
        ("", "500 Internal Server Error: acme: order status: invalid", 1),
        ("nothing of use", "", 0),
    ],
)
async def test_a_refused_certificate_is_an_error_with_what_was_said(
    program: FakeTailscale, out: str, err: str, ended: int
) -> None:
    program.answer("cert", out, err=err, status=ended)
    with pytest.raises(TailscaleRefused, match=err[:12] or "printed no certificate"):
        await tailscale_certificate(path_of(program), NAME)

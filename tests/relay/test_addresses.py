from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from quarterdeck.errors import StartRefused
from quarterdeck.relay import RelayAddress, RelaySettings, relay_address, relay_identity, tunnel_key
from quarterdeck.relay.settings import enrolled, forget_relay, load_relay, save_relay

PRINT = "A" * 43
ADDRESS = RelayAddress(domain="relay.test", port=8443, fingerprint=PRINT, token="t0ken_-")


@given(
    port=st.integers(1, 65_535),
    token=st.from_regex(r"[A-Za-z0-9_-]{0,30}", fullmatch=True),
    at=st.one_of(st.just(""), st.ip_addresses().map(str)),
)
def test_an_enrolment_line_is_read_as_it_was_printed(port: int, token: str, at: str) -> None:
    address = replace(ADDRESS, port=port, token=token, at=at)
    assert relay_address(address.enrolment) == address
    assert relay_address(address.url) == RelayAddress(domain="relay.test", port=port)
    assert token == "" or token not in address.url or len(token) < 6


@pytest.mark.parametrize(
    "text",
    [
        "",
        "http://relay.test",
        "https://192.0.2.1",
        "https://[::1]",
        "https://relay.test/path",
        "https://user@relay.test",
        "https://relay.test?at=desk",
        "https://relay.test?x=1",
        "https://relay.test#short",
        "https://relay.test:99999",
        f"https://relay.test#{PRINT}.to ken",
        "https://re_lay.test",
        "https://" + "a" * 300,
    ],
)
def test_what_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(StartRefused):
        relay_address(text)


def test_a_relay_is_remembered_until_it_is_forgotten(tmp_path: Path) -> None:
    assert load_relay(tmp_path) is None
    save_relay(tmp_path, RelaySettings(address=ADDRESS, certificate=tmp_path / "c"))
    found = load_relay(tmp_path)
    assert found == RelaySettings(address=ADDRESS, certificate=tmp_path / "c")
    assert (tmp_path / "relay.json").stat().st_mode & 0o777 == 0o600
    assert enrolled(found, ADDRESS.url) == found
    with pytest.raises(StartRefused, match="never enrolled"):
        enrolled(found, "https://other.test")
    forget_relay(tmp_path)
    assert load_relay(tmp_path) is None


def test_keys_stay_and_are_private(tmp_path: Path) -> None:
    key = tunnel_key(tmp_path / "relay.key")
    assert tunnel_key(tmp_path / "relay.key").label == key.label
    folder = tmp_path / "relay"
    folder.mkdir()
    identity = relay_identity(folder, "relay.test")
    again = relay_identity(folder, "relay.test")
    assert (again.fingerprint, again.token) == (identity.fingerprint, identity.token)
    for path in (tmp_path / "relay.key", *folder.iterdir()):
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o644)
        with pytest.raises(StartRefused, match="other users"):
            tunnel_key(path) if path.name == "relay.key" else relay_identity(folder, "relay.test")
        path.chmod(0o600)

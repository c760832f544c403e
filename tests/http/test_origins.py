"""Where a server may listen, which names and origins it accepts, and which token."""

from dataclasses import replace
from pathlib import Path

import pytest

from quarterdeck.errors import AgentError, StartRefused
from quarterdeck.http.origins import (
    Listening,
    accepted_peers,
    check_listening,
    check_token,
    host_name,
    is_in,
    is_loopback,
    origin_check,
    public_origin,
    sites,
    sites_of,
)
from quarterdeck.hub.auth.device_keys import hub_key
from quarterdeck.hub.auth.guard import Authentication, AuthenticationOptions
from quarterdeck.hub.store import HUB_TABLES, SqliteHubStore
from quarterdeck.storage.database import open_database

NETWORK = ["0.0.0.0", "::", "192.168.1.5", "fe80::1", "desk.example", ""]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_loopback_needs_nothing(host: str) -> None:
    check_listening(Listening(host=host))


@pytest.mark.parametrize("host", NETWORK)
def test_the_network_needs_tls(host: str) -> None:
    with pytest.raises(StartRefused, match="tokens need TLS; add --tls-cert"):
        check_listening(Listening(host=host, allowed_hosts=("desk.example",)))


@pytest.mark.parametrize("host", NETWORK)
def test_with_tls_and_a_name_any_address_will_do(host: str) -> None:
    check_listening(Listening(host=host, has_tls=True, allowed_hosts=("desk.example",)))


def test_all_addresses_at_once_need_a_name() -> None:
    with pytest.raises(StartRefused, match="add --allow-host NAME"):
        check_listening(Listening(host="0.0.0.0", has_tls=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "192.168.1.5"])
def test_behind_a_proxy_the_public_name_is_needed(host: str) -> None:
    proxies = ("192.168.1.2",)
    with pytest.raises(StartRefused, match="add --allow-host NAME"):
        check_listening(Listening(host=host, is_behind_proxy=True, trusted_proxies=proxies))
    check_listening(
        Listening(
            host=host,
            is_behind_proxy=True,
            allowed_hosts=("desk.example",),
            trusted_proxies=proxies,
        )
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "fd00::5"])
def test_behind_a_proxy_nothing_can_be_reached_past_it(host: str) -> None:
    behind = Listening(host=host, is_behind_proxy=True, allowed_hosts=("desk.example",))
    with pytest.raises(StartRefused, match="can be reached past the proxy") as refused:
        check_listening(behind)
    assert "--trusted-proxy ADDRESS" in str(refused.value)
    named = replace(behind, trusted_proxies=("127.0.0.1", "192.168.1.2", "fd00::/64"))
    check_listening(named)
    peers = accepted_peers(named)
    assert peers is not None
    for address in ("192.168.1.2", "::ffff:192.168.1.2", "fd00::9", "127.0.0.1", "::1"):
        assert is_in(address, peers), address
    for address in ("192.168.1.3", "fd00:0:0:1::9", "10.0.0.1", ""):
        assert not is_in(address, peers), address
    check_listening(replace(behind, has_tls=True))
    assert accepted_peers(replace(behind, has_tls=True)) is None
    with pytest.raises(StartRefused, match="not the address or network of a proxy"):
        accepted_peers(replace(behind, trusted_proxies=("proxy.example",)))


@pytest.mark.parametrize(
    "name",
    [
        *("https://desk.example", "*.example", "*", "desk.example/", "a b", "", ":80"),
        *("desk:0", "desk:99999", "user@desk", "desk.", "-desk"),
    ],
)
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(StartRefused, match="is not a host name; give it as browsers show it"):
        check_listening(Listening(allowed_hosts=(name,)))


def test_on_loopback_the_hub_has_three_names_with_its_port() -> None:
    named = sites(Listening(port=7272))
    assert {host: site.origin for host, site in named.items()} == {
        "127.0.0.1:7272": "http://127.0.0.1:7272",
        "localhost:7272": "http://localhost:7272",
        "[::1]:7272": "http://[::1]:7272",
    }
    assert not any(site.is_secure for site in named.values())


def test_with_tls_the_origin_is_https() -> None:
    site = sites(Listening(port=8443, has_tls=True))["localhost:8443"]
    assert site.origin == "https://localhost:8443"
    assert site.is_secure


def test_the_port_that_browsers_leave_out_may_be_left_out() -> None:
    named = sites(Listening(port=443, has_tls=True))
    assert named["localhost"].origin == named["localhost:443"].origin == "https://localhost"
    assert "localhost" not in sites(Listening(port=443))
    assert sites(Listening(port=80))["localhost"].origin == "http://localhost"


def test_behind_a_proxy_the_network_uses_https_and_this_computer_does_not() -> None:
    listening = Listening(port=7272, is_behind_proxy=True, allowed_hosts=("Desk.example", "a:8443"))
    named = sites(listening)
    assert named["desk.example"].origin == "https://desk.example"
    assert named["desk.example"].is_secure
    assert named["a:8443"].origin == "https://a:8443"
    assert named["127.0.0.1:7272"].origin == "http://127.0.0.1:7272"
    assert "desk.example:7272" not in named


def test_at_one_address_of_the_network_loopback_is_no_name() -> None:
    named = sites(Listening(host="192.168.1.5", port=8443, has_tls=True))
    assert list(named) == ["192.168.1.5:8443"]
    assert list(sites(Listening(host="FE80::1", port=1, has_tls=True))) == ["[fe80::1]:1"]


@pytest.mark.parametrize(
    ("listening", "origin"),
    [
        (Listening(port=7272), "http://127.0.0.1:7272"),
        (Listening(host="::1", port=7272), "http://[::1]:7272"),
        (Listening(host="192.168.1.5", port=443, has_tls=True), "https://192.168.1.5"),
        (Listening(host="0.0.0.0", port=1, has_tls=True, allowed_hosts=("d",)), "https://d:1"),
        (Listening(is_behind_proxy=True, allowed_hosts=("d.example",)), "https://d.example"),
        (Listening(is_behind_proxy=True, allowed_hosts=("d:8443",)), "https://d:8443"),
    ],
)
def test_other_devices_get_the_first_public_name(listening: Listening, origin: str) -> None:
    assert public_origin(listening) == origin


async def test_a_gate_is_not_made_where_tokens_could_be_read(tmp_path: Path) -> None:
    async with open_database(tmp_path / "hub.db", HUB_TABLES) as database:
        with pytest.raises(StartRefused, match="tokens need TLS"):
            Authentication(
                SqliteHubStore(database),
                hub_key(tmp_path / "identity.key"),
                AuthenticationOptions(listening=Listening(host="0.0.0.0")),
            )


# ---- the check of an agent

TOKEN = "0123456789abcdef"
GOOD = {"host": "127.0.0.1:9000", "authorization": f"Bearer {TOKEN}"}


def status(**changes: str | None) -> int:
    headers = {**GOOD, **{name.replace("_", "-"): text for name, text in changes.items()}}
    check = origin_check(
        "127.0.0.1", token=TOKEN, allowed_hosts=["Desk.Example"], origins=["https://ok.example"]
    )
    rejected = check.rejection({name: text for name, text in headers.items() if text is not None})
    return 200 if rejected is None else rejected.status


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_token_opens(scheme: str) -> None:
    assert status(authorization=f"{scheme} {TOKEN}") == 200


@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \xff"],
)
def test_nothing_but_the_token_opens(given: str | None) -> None:
    assert status(authorization=given) == 401


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:9000", 200),
        ("LOCALHOST:1", 200),
        ("[::1]:9000", 200),
        ("desk.example", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:9000", 403),
        ("192.168.1.5:9000", 403),
        ("127.0.0.1@evil.example", 403),
        ("evil.example/127.0.0.1", 403),
        ("127.0.0.1:port", 403),
        ("[::1", 403),
        ("", 403),
        (None, 403),
    ],
)
def test_only_our_own_names_are_answered_to(host: str | None, expected: int) -> None:
    assert status(host=host) == expected


def test_on_all_addresses_any_address_is_ours_but_no_strange_name() -> None:
    check = origin_check("0.0.0.0", token=TOKEN)
    assert check.rejection({**GOOD, "host": "192.168.1.5:9000"}) is None
    assert check.rejection({**GOOD, "host": "rebound.example:9000"}) is not None


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, 200),
        ("http://127.0.0.1:9000", 200),
        ("https://ok.example", 200),
        ("http://127.0.0.1:9001", 403),
        ("https://evil.example", 403),
        ("https://ok.example.evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_only_pages_of_known_origins_are_accepted(origin: str | None, expected: int) -> None:
    assert status(origin=origin) == expected


@pytest.mark.parametrize(
    ("site", "expected"),
    [(None, 200), ("none", 200), ("same-origin", 200), ("same-site", 403), ("cross-site", 403)],
)
def test_without_an_origin_the_fetch_site_is_checked(site: str | None, expected: int) -> None:
    assert status(sec_fetch_site=site) == expected


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_without_a_token_only_on_loopback(host: str) -> None:
    assert is_loopback(host)
    check_token(None, host, needs_token=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "desk.example", ""])
def test_never_without_a_token_for_others(host: str) -> None:
    with pytest.raises(AgentError, match="a token is needed there"):
        check_token(None, host, needs_token=False)


@pytest.mark.parametrize("token", ["", "short", "with blanks 1234567890", "ümlaut0123456789abc"])
def test_a_token_that_protects_nothing_is_refused(token: str) -> None:
    with pytest.raises(AgentError, match="a token has at least 16 plain characters"):
        check_token(token, "127.0.0.1", needs_token=True)


def test_a_missing_token_is_refused() -> None:
    with pytest.raises(AgentError, match="a token is needed; give one"):
        check_token(None, "127.0.0.1", needs_token=True)


def test_the_name_of_a_host_has_no_port() -> None:
    assert host_name("A.Example:80") == "a.example"
    assert host_name("[fe80::1]:80") == "fe80::1"
    assert host_name("a:99999") is None


def test_an_origin_that_was_found_later_has_the_hosts_that_browsers_send() -> None:
    assert list(sites_of("https://desk.example")) == ["desk.example:443", "desk.example"]
    assert list(sites_of("https://192.168.1.5:7272")) == ["192.168.1.5:7272"]
    assert sites_of("https://[FD00::5]:7272")["[fd00::5]:7272"].origin == "https://[fd00::5]:7272"

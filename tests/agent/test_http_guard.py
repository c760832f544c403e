"""Who may come in: names, origins, tokens."""

import pytest

from quarterdeck.errors import AgentError
from quarterdeck.http.origins import check_token, host_name, is_loopback, origin_check

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
def test_only_pages_of_known_origins_come_in(origin: str | None, expected: int) -> None:
    assert status(origin=origin) == expected


@pytest.mark.parametrize(
    ("site", "expected"),
    [(None, 200), ("none", 200), ("same-origin", 200), ("same-site", 403), ("cross-site", 403)],
)
def test_a_browser_that_leaves_out_the_origin_is_still_asked_for_its_site(
    site: str | None, expected: int
) -> None:
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

"""What is decided from the head of a request alone."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from quarterdeck.http.origins import Listening, sites
from quarterdeck.hub.auth.admission import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    Accepted,
    Head,
    Rejected,
    admit,
    without_secrets,
)

SITES = sites(Listening(port=7272))
HOST = ("host", "127.0.0.1:7272")
OWN = ("origin", "http://127.0.0.1:7272")
COOKIE = ("cookie", "other=1; quarterdeck-7272=qd_x; more=2")
BEARER = ("authorization", "Bearer qd_x")
JSON = ("content-type", "application/json")


def ask(
    *headers: tuple[str, str], method: str = "GET", path: str = "/api/x", is_socket: bool = False
) -> Accepted | Rejected:
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    head = Head("http", method, path, path.encode(), encoded)
    return admit(SITES, replace(head, kind="websocket") if is_socket else head)


def status(verdict: Accepted | Rejected) -> int:
    return verdict.status if isinstance(verdict, Rejected) else 200


def admitted(verdict: Accepted | Rejected) -> Accepted:
    assert isinstance(verdict, Accepted), verdict
    return verdict


@pytest.mark.parametrize(
    "host", ["127.0.0.1:7272", "localhost:7272", "LocalHost:7272", "[::1]:7272"]
)
def test_every_name_of_loopback_is_ours(host: str) -> None:
    assert status(ask(("host", host), BEARER)) == 200


def test_a_token_comes_from_the_header_first() -> None:
    planted = ("cookie", "quarterdeck-7272=qd_planted")
    assert admitted(ask(HOST, BEARER, planted)).token == "qd_x"
    assert admitted(ask(HOST, ("authorization", "bearer  qd_x "))).token == "qd_x"


def test_an_authorization_that_is_no_token_is_not_mended_by_a_cookie() -> None:
    assert admitted(ask(HOST, ("authorization", "Basic qd_x"), COOKIE)).token == ""


def test_a_cookie_is_enough_to_read() -> None:
    assert admitted(ask(HOST, COOKIE)).token == "qd_x"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_cookie_is_enough_to_act_only_with_our_own_origin(method: str) -> None:
    assert status(ask(HOST, COOKIE, method=method)) == 403
    assert admitted(ask(HOST, COOKIE, OWN, method=method)).token == "qd_x"


def test_a_cookie_opens_a_socket_only_with_our_own_origin() -> None:
    assert status(ask(HOST, COOKIE, is_socket=True)) == 403
    assert admitted(ask(HOST, COOKIE, OWN, is_socket=True)).token == "qd_x"


def test_a_page_at_one_name_of_ours_is_a_stranger_at_another() -> None:
    assert status(ask(HOST, BEARER, ("origin", "http://localhost:7272"))) == 403
    both = (("host", "localhost:7272"), ("origin", "http://localhost:7272"))
    assert status(ask(*both, BEARER)) == 200


def test_a_socket_may_bring_its_token_as_a_subprotocol() -> None:
    offered = ("sec-websocket-protocol", "quarterdeck, quarterdeck.token.qd_y")
    assert admitted(ask(HOST, offered, is_socket=True)).token == "qd_y"
    assert admitted(ask(HOST, offered)).token is None


def test_a_planted_second_cookie_makes_both_worthless() -> None:
    two = ("cookie", "quarterdeck-7272=qd_x; quarterdeck-7272=qd_planted")
    assert admitted(ask(HOST, two)).token is None


def test_a_cookie_of_another_port_is_not_ours() -> None:
    assert admitted(ask(HOST, ("cookie", "quarterdeck-7273=qd_x"))).token is None


@pytest.mark.parametrize(
    ("method", "path", "is_public"),
    [
        ("GET", "/", True),
        ("HEAD", "/", True),
        ("GET", "/assets/app.js", True),
        ("GET", "/sw.js", True),
        ("GET", "/manifest.webmanifest", True),
        ("GET", "/icons/192.png", True),
        ("GET", "/healthz", True),
        ("POST", "/api/pair", True),
        ("GET", "/api/pair", False),
        ("POST", "/", False),
        ("DELETE", "/assets/app.js", False),
        ("GET", "/assets", False),
        ("GET", "/metrics", False),
        ("GET", "/api/sessions", False),
        ("POST", "/api/pairings", False),
        ("GET", "/unknown", False),
        ("GET", "/ws", False),
        ("GET", "/api/context", False),
    ],
)
def test_only_the_page_health_and_pairing_are_public(
    method: str, path: str, is_public: bool
) -> None:
    assert admitted(ask(HOST, method=method, path=path)).is_public is is_public


@pytest.mark.parametrize(
    ("path", "is_public"),
    [
        ("/api/context", True),
        ("/ws", True),
        ("/", False),
        ("/api/envelope", False),
        ("/healthz", False),
        ("/assets/x", False),
        ("/ws/", False),
    ],
)
def test_only_sockets_that_ask_for_a_token_themselves_are_public(
    path: str, is_public: bool
) -> None:
    assert admitted(ask(HOST, path=path, is_socket=True)).is_public is is_public
    assert status(ask(HOST, ("origin", "null"), path=path, is_socket=True)) == 403


def test_a_link_on_another_site_may_be_followed_to_the_page_and_nowhere_else() -> None:
    followed = (
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    )
    assert status(ask(HOST, *followed, path="/")) == 200
    assert status(ask(HOST, *followed, COOKIE, path="/api/x")) == 403
    assert status(ask(HOST, *followed, path="/assets/app.js")) == 403
    assert status(ask(HOST, *followed, method="POST", path="/")) == 403
    framed = (*followed[:2], ("sec-fetch-dest", "iframe"))
    assert status(ask(HOST, *framed, path="/")) == 403


@pytest.mark.parametrize(
    "path",
    [
        "//api/x",
        "/api//x",
        "/api/../x",
        "/api/.",
        "/..",
        "/api/x\\y",
        "/api/\nx",
        "/api/\x7f",
        "",
        "*",
        "http://127.0.0.1:7272/api/x",
    ],
)
def test_a_path_with_detours_is_refused(path: str) -> None:
    assert status(ask(HOST, BEARER, path=path)) == 400


def test_a_path_that_only_decodes_to_a_detour_is_refused() -> None:
    for raw in (b"/a%2Fb", b"/a%2fb", b"/%2e%2E/x", b"/a%5cb", b"/a%00"):
        head = Head("http", "GET", "/a", raw, [(b"host", b"127.0.0.1:7272")])
        assert status(admit(SITES, head)) == 400
    plain = Head("http", "GET", "/a b%", b"/a%20b%25", [(b"host", b"127.0.0.1:7272")])
    assert status(admit(SITES, plain)) == 200


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"]
)
def test_json_is_the_one_type_of_bodies(content_type: str) -> None:
    sent = (HOST, BEARER, ("content-length", "2"), ("content-type", content_type))
    verdict = admitted(ask(*sent, method="POST"))
    assert (verdict.has_body, verdict.length) == (True, 2)


def test_a_request_without_a_body_needs_no_type() -> None:
    assert status(ask(HOST, BEARER, method="POST")) == 200
    assert status(ask(HOST, BEARER, ("content-length", "0"), method="DELETE")) == 200
    # But a form without fields is a form.
    form = ("content-type", "application/x-www-form-urlencoded")
    assert status(ask(HOST, BEARER, form, ("content-length", "0"), method="POST")) == 415


def test_reading_has_no_body() -> None:
    assert status(ask(HOST, BEARER, JSON, ("content-length", "2"))) == 400
    assert status(ask(HOST, BEARER, JSON, ("transfer-encoding", "chunked"))) == 400
    assert status(ask(HOST, BEARER, ("content-length", "2"), is_socket=True)) == 400


def test_headers_are_few_and_short() -> None:
    few = [(f"x-{number}", "") for number in range(MAX_HEADERS - 2)]
    assert status(ask(HOST, BEARER, *few)) == 200
    assert status(ask(HOST, BEARER, *few, ("x", ""))) == 431
    assert status(ask(HOST, BEARER, ("x", "y" * MAX_HEADER_BYTES))) == 431


def test_handlers_see_no_token() -> None:
    offered = (b"sec-websocket-protocol", b"quarterdeck, quarterdeck.token.qd_y, more")
    headers = [(b"host", b"h"), (b"authorization", b"a"), (b"cookie", b"c"), offered]
    kept = without_secrets(headers)
    assert kept == [(b"host", b"h"), (b"sec-websocket-protocol", b"quarterdeck, more")]


NAMES = st.sampled_from(
    [
        *("host", "origin", "cookie", "authorization", "sec-fetch-site", "content-type"),
        *("content-length", "transfer-encoding", "sec-websocket-protocol", "x"),
    ]
)
VALUES = st.one_of(
    st.sampled_from(
        [
            *("127.0.0.1:7272", "localhost:7272", "http://127.0.0.1:7272", "null", "same-origin"),
            *("cross-site", "Bearer qd_x", "quarterdeck-7272=qd_x", "application/json", "0", "2"),
            *("evil.example", "https://evil.example", "chunked", "quarterdeck.token.qd_x", ""),
        ]
    ),
    st.text(st.characters(max_codepoint=255), max_size=20),
)
HEADS = st.builds(
    Head,
    st.sampled_from(["http", "websocket"]),
    st.sampled_from(["GET", "HEAD", "OPTIONS", "POST", "DELETE", "TRACE", "get", ""]),
    st.sampled_from(["/", "/api/pair", "/api/x", "/assets/x", "//", "/.."]) | st.text(max_size=8),
    st.binary(max_size=8),
    st.lists(st.tuples(NAMES.map(str.encode), VALUES.map(lambda each: each.encode("latin-1")))),
)


@given(HEADS)
def test_whoever_is_admitted_has_named_us_once_and_is_no_stranger(head: Head) -> None:
    verdict = admit(SITES, head)
    if isinstance(verdict, Rejected):
        assert verdict.status in (400, 403, 415, 421, 431)
        return
    named = [value.decode("latin-1").lower() for name, value in head.headers if name == b"host"]
    origins = [value.decode("latin-1") for name, value in head.headers if name == b"origin"]
    assert len(named) == 1
    assert SITES[named[0]] == verdict.site
    assert origins in ([], [verdict.site.origin])
    explicit = any(
        name in (b"authorization", b"sec-websocket-protocol") for name, _ in head.headers
    )
    is_doing = head.method not in ("GET", "HEAD", "OPTIONS") or head.kind == "websocket"
    if verdict.token is not None and is_doing and not explicit:
        assert origins


@given(HEADS)
def test_an_origin_of_somebody_else_changes_an_admission_into_a_refusal(head: Head) -> None:
    plain = replace(head, headers=[each for each in head.headers if each[0] != b"origin"])
    foreign = replace(head, headers=[*plain.headers, (b"origin", b"https://evil.example")])
    if isinstance(admit(SITES, plain), Accepted):
        assert status(admit(SITES, foreign)) == 403

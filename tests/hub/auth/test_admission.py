"""Which requests are accepted by their heads alone."""

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
    named_credentials,
    without_secrets,
)

SITES = sites(Listening(port=7272))
HOST = ("host", "127.0.0.1:7272")
OWN = ("origin", "http://127.0.0.1:7272")
COOKIE = ("cookie", "other=1; quarterdeck-7272=qd_x; more=2")
BEARER = ("authorization", "Bearer qd_x")
JSON = ("content-type", "application/json")


def request(
    *headers: tuple[str, str], method: str = "GET", path: str = "/api/x", is_socket: bool = False
) -> Accepted | Rejected:
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    head = Head("http", method, path, path.encode(), encoded)
    return admit(SITES, replace(head, kind="websocket") if is_socket else head)


def status(verdict: Accepted | Rejected) -> int:
    return verdict.status if isinstance(verdict, Rejected) else 200


def accepted(verdict: Accepted | Rejected) -> Accepted:
    assert isinstance(verdict, Accepted), verdict
    return verdict


@pytest.mark.parametrize(
    "host", ["127.0.0.1:7272", "localhost:7272", "LocalHost:7272", "[::1]:7272"]
)
def test_every_name_of_loopback_is_ours(host: str) -> None:
    assert status(request(("host", host), BEARER)) == 200


def test_a_token_comes_from_the_header_first() -> None:
    planted = ("cookie", "quarterdeck-7272=qd_planted")
    assert accepted(request(HOST, BEARER, planted)).token == "qd_x"
    assert accepted(request(HOST, ("authorization", "bearer  qd_x "))).token == "qd_x"


def test_a_cookie_does_not_replace_an_invalid_authorization_header() -> None:
    assert accepted(request(HOST, ("authorization", "Basic qd_x"), COOKIE)).token == ""


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("is_socket", [False, True])
@pytest.mark.parametrize("more", [(), (OWN,), (OWN, ("sec-fetch-site", "same-origin"))])
def test_a_cookie_is_worth_nothing(
    method: str, is_socket: bool, more: tuple[tuple[str, str], ...]
) -> None:
    for name in ("quarterdeck-7272", "__Host-quarterdeck-7272", "authorization", "token"):
        verdict = request(
            HOST, ("cookie", f"{name}=qd_x"), *more, method=method, is_socket=is_socket
        )
        assert (accepted(verdict).token, accepted(verdict).proof) == (None, None)


def test_a_proof_is_no_token_and_a_token_is_no_proof() -> None:
    signed = accepted(request(HOST, ("authorization", "quarterdeckkey  a.b ")))
    assert (signed.token, signed.proof) == (None, "a.b")
    assert accepted(request(HOST, BEARER)).proof is None
    offered = ("sec-websocket-protocol", "quarterdeck, quarterdeck.proof.a.b")
    socket = accepted(request(HOST, offered, is_socket=True))
    assert (socket.token, socket.proof) == (None, "a.b")
    assert accepted(request(HOST, offered)).proof is None


def test_a_page_at_one_name_of_the_hub_cannot_use_another_name() -> None:
    assert status(request(HOST, BEARER, ("origin", "http://localhost:7272"))) == 403
    both = (("host", "localhost:7272"), ("origin", "http://localhost:7272"))
    assert status(request(*both, BEARER)) == 200


def test_a_websocket_can_send_its_token_as_a_subprotocol() -> None:
    offered = ("sec-websocket-protocol", "quarterdeck, quarterdeck.token.qd_y")
    assert accepted(request(HOST, offered, is_socket=True)).token == "qd_y"
    assert accepted(request(HOST, offered)).token is None


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
        ("POST", "/api/machines/join", True),
        ("POST", "/api/machines/codes", False),
        ("GET", "/api/machines", False),
        ("GET", "/api/link", False),
        ("GET", "/api/nonce", True),
        ("POST", "/api/nonce", False),
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
    assert accepted(request(HOST, method=method, path=path)).is_public is is_public


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
def test_only_websockets_that_request_a_token_themselves_are_public(
    path: str, is_public: bool
) -> None:
    assert accepted(request(HOST, path=path, is_socket=True)).is_public is is_public
    assert status(request(HOST, ("origin", "null"), path=path, is_socket=True)) == 403


def test_a_link_on_another_site_may_be_followed_to_the_page_and_nowhere_else() -> None:
    followed = (
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    )
    assert status(request(HOST, *followed, path="/")) == 200
    assert status(request(HOST, *followed, COOKIE, path="/api/x")) == 403
    assert status(request(HOST, *followed, path="/assets/app.js")) == 403
    assert status(request(HOST, *followed, method="POST", path="/")) == 403
    framed = (*followed[:2], ("sec-fetch-dest", "iframe"))
    assert status(request(HOST, *framed, path="/")) == 403


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
def test_a_path_that_is_not_normalized_is_rejected(path: str) -> None:
    assert status(request(HOST, BEARER, path=path)) == 400


def test_a_path_that_is_not_normalized_when_decoded_is_rejected() -> None:
    for raw in (b"/a%2Fb", b"/a%2fb", b"/%2e%2E/x", b"/a%5cb", b"/a%00"):
        head = Head("http", "GET", "/a", raw, [(b"host", b"127.0.0.1:7272")])
        assert status(admit(SITES, head)) == 400
    plain = Head("http", "GET", "/a b%", b"/a%20b%25", [(b"host", b"127.0.0.1:7272")])
    assert status(admit(SITES, plain)) == 200


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON"]
)
def test_only_json_bodies_are_accepted(content_type: str) -> None:
    sent = (HOST, BEARER, ("content-length", "2"), ("content-type", content_type))
    verdict = accepted(request(*sent, method="POST"))
    assert (verdict.has_body, verdict.length) == (True, 2)


def test_a_request_without_a_body_needs_no_type() -> None:
    assert status(request(HOST, BEARER, method="POST")) == 200
    assert status(request(HOST, BEARER, ("content-length", "0"), method="DELETE")) == 200
    # But a form without fields is a form.
    form = ("content-type", "application/x-www-form-urlencoded")
    assert status(request(HOST, BEARER, form, ("content-length", "0"), method="POST")) == 415


def test_a_read_has_no_body() -> None:
    assert status(request(HOST, BEARER, JSON, ("content-length", "2"))) == 400
    assert status(request(HOST, BEARER, JSON, ("transfer-encoding", "chunked"))) == 400
    assert status(request(HOST, BEARER, ("content-length", "2"), is_socket=True)) == 400


def test_headers_are_few_and_short() -> None:
    few = [(f"x-{number}", "") for number in range(MAX_HEADERS - 2)]
    assert status(request(HOST, BEARER, *few)) == 200
    assert status(request(HOST, BEARER, *few, ("x", ""))) == 431
    assert status(request(HOST, BEARER, ("x", "y" * MAX_HEADER_BYTES))) == 431


def test_handlers_see_no_token() -> None:
    protocols = b"quarterdeck, quarterdeck.token.qd_y, quarterdeck.proof.p, more"
    offered = (b"sec-websocket-protocol", protocols)
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
            *("QuarterdeckKey a.b.c", "quarterdeck.proof.a.b.c"),
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
def test_an_accepted_request_has_one_host_of_ours_and_no_foreign_origin(head: Head) -> None:
    verdict = admit(SITES, head)
    if isinstance(verdict, Rejected):
        assert verdict.status in (400, 403, 415, 421, 431)
        return
    named = [value.decode("latin-1").lower() for name, value in head.headers if name == b"host"]
    origins = [value.decode("latin-1") for name, value in head.headers if name == b"origin"]
    assert len(named) == 1
    assert SITES[named[0]] == verdict.site
    assert origins in ([], [verdict.site.origin])
    carriers = {name for name, _ in head.headers} & {b"authorization", b"sec-websocket-protocol"}
    if verdict.token is not None or verdict.proof is not None:
        assert carriers, "a browser adds neither by itself"
        assert None in (verdict.token, verdict.proof)


@given(HEADS)
def test_a_foreign_origin_turns_an_accepted_request_into_a_rejected_one(head: Head) -> None:
    plain = replace(head, headers=[each for each in head.headers if each[0] != b"origin"])
    foreign = replace(head, headers=[*plain.headers, (b"origin", b"https://evil.example")])
    if isinstance(admit(SITES, plain), Accepted):
        assert status(admit(SITES, foreign)) == 403


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("Authorization: Bearer qd_abc", ("qd_abc", None)),
        ("authorization:bearer qd_abc", ("qd_abc", None)),
        ("AUTHORIZATION:  BEARER  qd_abc", ("qd_abc", None)),
        ("Authorization: QuarterdeckKey dev_1.n.1.i.d.s", (None, "dev_1")),
        ("Sec-WebSocket-Protocol: quarterdeck, quarterdeck.token.qd_abc", ("qd_abc", None)),
        ("sec-websocket-protocol: a,quarterdeck.proof.dev_1.n.1", (None, "dev_1")),
        ("Authorization: Basic qd_abc", (None, None)),
        ("X-Authorization: Bearer qd_abc", (None, None)),
        ("Cookie: a=Bearer qd_abc", (None, None)),
        ("Accept: */*", (None, None)),
    ],
)
def test_the_bytes_of_a_head_name_what_its_parsed_form_names(
    line: str, named: tuple[str | None, str | None]
) -> None:
    first = "GET /api/envelope HTTP/1.1\r\nHost: 127.0.0.1:7272"
    for more in ("", "\r\nUser-Agent: x"):
        assert named_credentials(f"{first}{more}\r\n{line}".encode()) == named
        assert named_credentials(f"{first}\r\n{line}{more}".encode()) == named

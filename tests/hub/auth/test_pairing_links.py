"""The link and its QR code."""

from urllib.parse import urlsplit

import segno

from quarterdeck.hub.auth.pairing import pairing_link, qr_text

LINK = pairing_link("http://127.0.0.1:7272", "x" * 43)


def test_the_code_is_in_the_fragment() -> None:
    parts = urlsplit(LINK)
    assert (parts.path, parts.query, parts.fragment) == ("/", "", "pair=" + "x" * 43)


def test_the_text_is_the_qr_code_with_two_rows_per_line() -> None:
    halves = {"█": (0, 0), "▀": (0, 1), "▄": (1, 0), " ": (1, 1)}
    rows: list[list[int]] = []
    for line in qr_text(LINK).splitlines():
        pairs = [halves[each] for each in line]
        rows += [[upper for upper, _ in pairs], [lower for _, lower in pairs]]
    expected = [list(row) for row in segno.make_qr(LINK, error="l").matrix_iter(border=2)]
    assert rows[: len(expected)] == expected
    assert all(not any(row) for row in rows[len(expected) :])


def test_it_fits_into_a_small_terminal() -> None:
    lines = qr_text(pairing_link("https://desktop.tailnet-name.ts.net", "x" * 43)).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80

"""When a terminal's text is emitted, and how much of it in a flood."""

from __future__ import annotations

from typing import Any

from hypothesis import given, strategies as st

from quarterdeck.machine.terminals import Deltas


def test_text_is_emitted_when_there_is_enough_or_when_it_is_due() -> None:
    payloads: list[dict[str, Any]] = []
    deltas = Deltas(payloads.append)
    deltas.add("a", 1.0)
    deltas.add("b", 1.02)
    assert (payloads, deltas.due) == ([], 1.05)
    deltas.flush()
    assert payloads == [{"delta": "ab"}]
    deltas.add("c" * 40_000, 2.0)
    assert [len(payload["delta"]) for payload in payloads[1:]] == [32768, 40_000 - 32768]


@given(st.lists(st.text(max_size=9) | st.integers(1, 50_000).map("y".__mul__), max_size=20))
def test_a_megabyte_is_emitted_completely_and_in_order(pieces: list[str]) -> None:
    payloads: list[dict[str, Any]] = []
    deltas = Deltas(payloads.append)
    for piece in pieces:
        deltas.add(piece, 0.0)
    deltas.flush()
    assert "".join(payload["delta"] for payload in payloads) == "".join(pieces)
    assert all(0 < len(payload["delta"]) <= 32 * 1024 for payload in payloads)


def test_a_flood_is_shortened_to_its_newest_text_and_marked() -> None:
    payloads: list[dict[str, Any]] = []
    deltas = Deltas(payloads.append)
    for number in range(100):
        deltas.add(f"{number:02}" * 32 * 1024, 0.0)
    assert sum(len(payload["delta"]) for payload in payloads) == 1024 * 1024
    deltas.flush()
    last = "".join(payload["delta"] for payload in payloads if "truncated" in payload)
    left_out = 100 * 64 * 1024 - 1024 * 1024 - 32 * 1024
    assert last == f"\n[{left_out} characters left out]\n" + "99" * 16 * 1024


def test_a_calm_moment_ends_a_flood() -> None:
    payloads: list[dict[str, Any]] = []
    deltas = Deltas(payloads.append)
    for _ in range(20):
        deltas.add("x" * 64 * 1024, 0.0)
    deltas.flush()
    deltas.add("calm", 1.0)
    deltas.flush()
    payloads.clear()
    deltas.add("x" * 64 * 1024, 2.0)
    assert sum(len(payload["delta"]) for payload in payloads) == 64 * 1024

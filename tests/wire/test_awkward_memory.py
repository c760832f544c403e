"""Awkward peers, part 5: memory stays bounded. Each client runs in a process of its own.

| no | the peer | defined outcome |
| --- | --- | --- |
| 23 | answers with a line of 64 MiB | delivered, at a few times its size |
| 24 | answers with 400 MB, beyond the limit | the call fails; what is refused is not kept |
| 55 | sends 100,000 updates while a request handler never returns | all in order, no growth |
| 56 | reads nothing of 200 prompts of 1 MB | callers wait, can be cancelled; two prompts are held |
| 57 | sends 100,000 requests whose handlers never return | `max_requests` run, others are refused |

Also: 100,000 lines of garbage from a peer that reads none of the answers, and 100 MB on standard
error without a newline.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.taping.tapes import environment

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


async def measured(scenario: str) -> Any:
    with anyio.fail_after(120):
        run = await anyio.run_process(
            [sys.executable, "-m", "tests.wire.awkward.measured", scenario],
            cwd=ROOT,
            env=environment(ROOT / "src"),
            stderr=None,
        )
    return json.loads(run.stdout)


async def test_a_line_of_64_mebibytes_is_delivered() -> None:
    facts = await measured("largest_answer")
    assert facts["received"] == facts["expected"]
    assert facts["refused"] == 0
    assert facts["grown"] < 400


async def test_an_answer_far_beyond_the_limit_is_refused_without_being_kept() -> None:
    facts = await measured("answer_beyond_the_limit")
    assert "exceeds the limit of 1000000 bytes" in facts["problem"]
    assert facts["grown"] < 20


async def test_updates_pass_a_handler_that_never_returns() -> None:
    facts = await measured("updates_behind_a_handler_that_never_returns")
    assert (facts["count"], facts["in_order"]) == (100_000, True)
    assert facts["grown"] < 15


async def test_a_peer_that_reads_nothing_makes_callers_wait() -> None:
    facts = await measured("prompts_to_a_peer_that_does_not_read")
    assert facts["cancelled while open"] == 100
    assert facts["failed"] == 100
    assert facts["grown"] < 30


async def test_requests_whose_handlers_never_return_are_limited() -> None:
    facts = await measured("requests_that_never_end")
    assert facts["overloaded"] >= 99_000
    assert facts["grown"] < 40


async def test_answers_to_garbage_are_limited_if_the_peer_does_not_read() -> None:
    facts = await measured("garbage_from_a_peer_that_reads_nothing")
    assert facts["malformed"] == 100_000
    assert 0 < facts["overloaded"] < 100_000
    assert facts["grown"] < 20


async def test_standard_error_without_a_newline_is_limited() -> None:
    facts = await measured("standard_error_without_end")
    assert facts["kept"] == 100
    assert facts["grown"] < 20

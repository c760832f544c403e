"""Recordings of real agents, played through the host: nothing is lost, changed or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.faults.replay import Recording, play

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TRACES = Path(__file__).parents[1] / "vectors/traces"
RECORDINGS = sorted(TRACES.glob("*.jsonl"))


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
async def test_every_update_of_a_recording_is_one_event_as_it_was_sent(
    recording: Path, tmp_path: Path
) -> None:
    outcome = await play(recording, tmp_path)
    assert outcome.problems == []
    counts = outcome.counts
    accounted = (
        "updates recorded",
        "echoes of prompts",
        "updates refused while resuming, with a diagnostic",
    )
    assert sum(counts[name] for name in accounted) == counts["updates"]
    assert counts["updates recorded"] > 0


def test_the_recordings_show_what_agents_request_of_a_host() -> None:
    sent = {
        step[1]["method"]
        for path in RECORDINGS
        for step in Recording(path).steps
        if step[0] == "send"
    }
    requests = {"session/request_permission", "fs/read_text_file", "terminal/create"}
    assert {"session/update", *requests} <= sent

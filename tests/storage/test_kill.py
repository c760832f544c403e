"""INV-5: what was acknowledged survives `kill -9`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from quarterdeck.storage import CheckedStorage
from tests.storage.support import ANY_STORAGE, DURABLE, last_seqs, opened, seqs

ROOT = Path(__file__).parents[2]


def append_until_killed(kind: str, folder: Path, acknowledgements: int) -> dict[str, int]:
    """Return the last seq of each session that was acknowledged to the child."""
    command = [sys.executable, "-m", "tests.storage.appender", kind, str(folder)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, cwd=ROOT) as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(acknowledgements)]
        child.kill()
        lines += child.stdout.readlines()
    acknowledged = dict.fromkeys(("s0", "s1", "s2"), 0)
    for line in lines:
        if line.endswith(b"\n"):
            session_id, seq = line.decode().split()
            acknowledged[session_id] = int(seq)
    return acknowledged


@pytest.mark.slow
@pytest.mark.parametrize("kind", DURABLE)
async def test_inv_5_every_acknowledged_event_survives_kill_9(kind: str, tmp_path: Path) -> None:
    epochs: set[str] = set()
    for acknowledgements in (1, 77, 400):
        acknowledged = append_until_killed(kind, tmp_path, acknowledgements)
        async with opened(ANY_STORAGE[kind](tmp_path)) as storage:
            assert isinstance(storage, CheckedStorage)
            assert not storage.damages
            epochs.add(storage.epoch.id)
            last = await last_seqs(storage)
            assert all(last[name] >= seq for name, seq in acknowledged.items() if seq)
            for session_id, seq in last.items():
                assert await seqs(storage, session_id) == list(range(1, seq + 1))
    assert len(epochs) == 1  # nothing was lost: the numbers of readers stay valid

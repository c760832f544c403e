"""The runner's own log: JSON lines in private files of a bounded size."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from quarterdeck.cli import log_output
from quarterdeck.cli.log_output import runner_logging


def test_the_log_of_a_runner_is_private_bounded_and_has_the_reason_of_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_output, "MOST_LOG_BYTES", 2_000)
    path = tmp_path / "runner.log"
    before = logging.getLogger().handlers[:]

    def fail() -> None:
        with runner_logging(path, is_detached=True):
            for number in range(200):
                logging.getLogger("quarterdeck").info("line", extra={"number": number})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert logging.getLogger().handlers == before
    files = sorted(tmp_path.iterdir())
    assert [each.name for each in files] == ["runner.log", "runner.log.1"]
    for each in files:
        assert each.stat().st_mode & 0o777 == 0o600
        assert each.stat().st_size < 4_000
    last = json.loads(path.read_text().splitlines()[-1])
    assert (last["message"], "ZeroDivisionError" in last["exception"]) == (
        "the runner has failed",
        True,
    )

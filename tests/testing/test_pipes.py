import os
from pathlib import Path

from quarterdeck.testing.pipes import Pipes


def test_an_input_that_cannot_be_read_is_one_that_has_ended(tmp_path: Path) -> None:
    pipes = Pipes(os.open(tmp_path, os.O_RDONLY), -1, with_headers=False)
    assert pipes.read() is None


def test_an_input_that_another_process_has_emptied_has_not_ended() -> None:
    reads, writes = os.pipe()
    os.set_blocking(reads, False)
    pipes = Pipes(reads, -1, with_headers=False)
    assert pipes.read() == []
    os.write(writes, b"{}\n")
    assert pipes.read() == [{}]
    pipes.close_input()
    os.close(writes)

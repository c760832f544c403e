"""Free memory goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from quarterdeck.machine import free_memory

PROGRAM = """
from pathlib import Path
from quarterdeck.machine.free_memory import release_free_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

kept = [b"x" * (100_000 if each % 2 else 600) for each in range(1600)]
for each in range(1, 1600, 2):
    kept[each] = b""
before = resident()
is_released = release_free_memory(40_000_000)
print(is_released, before - resident())
"""


@pytest.mark.skipif(not free_memory.free_bytes(), reason="the C library does not say")
def test_what_was_freed_between_what_is_used_is_given_back() -> None:
    # In a process of its own, whose heap has nothing else.
    ran = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True)
    is_released, given_back = ran.stdout.split()
    assert is_released == b"True"
    assert int(given_back) > 40_000_000


def test_little_free_memory_is_left_where_it_is() -> None:
    assert not free_memory.release_free_memory(1 << 40)


def test_another_c_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory, "_libc", lambda: None)
    assert free_memory.free_bytes() == 0
    assert not free_memory.release_free_memory(0)

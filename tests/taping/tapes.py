"""Reads the tapes, and holds every message that an agent sent against ACP's own schema."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from quarterdeck.wire.framing import Frame, FrameReader, Lines, Payload
from tests.agent.official import check
from tests.taping import sitecustomize

FOLDER = Path(sitecustomize.__file__).parent


def environment(*more: Path) -> dict[str, str]:
    """Return the variables for a Python process that also imports from `more`, and is taped."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = dict.fromkeys([str(FOLDER), *map(str, more), *filter(None, known)])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


class Tapes:
    """The tapes in one folder; what was checked once is not looked at again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        """Messages that were checked."""
        self._read: dict[Path, int] = {}
        self._readers: dict[Path, FrameReader] = {}
        self._asked: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def check(self) -> None:
        """Look at what was said since the last time.

        Raises:
            AssertionError: if a message is not what the schema says.
        """
        wrong = []
        for path in sorted(self.folder.glob("*.out")):
            # The requests afterwards: an answer that is on its tape has its request on the other.
            said = list(self._new(path))
            asked = self._asked[path.stem]
            for call in self._new(path.with_suffix(".in")):
                if isinstance(call, dict) and isinstance(call.get("method"), str):
                    asked[json.dumps(call.get("id"))].add(call["method"])
            for message in said:
                self.count += 1
                if (problem := check(message, asked)) is not None:
                    wrong.append(problem)
        assert wrong == [], "\n".join(wrong[:10])

    def _new(self, path: Path) -> list[Any]:
        """Return the whole messages that came since the last time."""
        place = self._read.get(path, 0)
        with path.open("rb") as file:
            file.seek(place)
            data = file.read()
        self._read[path] = place + len(data)
        reader = self._readers.setdefault(path, FrameReader())
        payloads = [line for each in reader.feed(data) for line in _payloads(each)]
        return [message for each in payloads if (message := _decoded(each, path)) is not None]


def _payloads(frame: Frame) -> list[bytes]:
    match frame:
        case Lines(lines):
            return lines.splitlines()
        case Payload(payload):
            return [payload]
        case _:
            return []


def _decoded(payload: bytes, path: Path) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        assert path.suffix == ".in", f"an agent sent what is no JSON: {payload[:200]!r}"
        return None

"""Reads the tapes, and holds every message that an agent sent against ACP's own schema."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from quarterdeck.acp import methods
from quarterdeck.wire.framing import Frame, FrameReader, Lines, Payload
from tests.agent.official import UNSTABLE, check
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
        self._versions: dict[str, int] = {}
        self._asked: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))

    def check(self) -> None:
        """Check the messages since the last time.

        Raises:
            AssertionError: if a message is not what the schema says.
        """
        wrong = []
        for path in sorted(self.folder.glob("*.out")):
            is_over = _is_over(path)
            # The requests afterwards: an answer that is on its tape has its request on the other.
            said = list(self._new(path))
            asked = self._asked[path.stem]
            for call in self._new(path.with_suffix(".in")):
                if "subagents" in _capabilities(call) or _is_unstable(call):
                    self._versions.setdefault(path.stem, UNSTABLE)
                if isinstance(call, dict) and isinstance(call.get("method"), str):
                    asked[json.dumps(call.get("id"))].add(call["method"])
            for message in said:
                self.count += 1
                self._note_version(path.stem, message)
                if (problem := check(message, asked, self._versions.get(path.stem, 1))) is not None:
                    wrong.append(problem)
            if is_over:
                self._forget(path)
        assert wrong == [], "\n".join(wrong[:10])

    def _note_version(self, name: str, message: Any) -> None:
        """Note that a conversation is in ACP 2, by the answer to `initialize`."""
        result = message.get("result") if isinstance(message, dict) else None
        if isinstance(result, dict) and result.get("protocolVersion") == 2:
            self._versions[name] = 2

    def _forget(self, path: Path) -> None:
        """Keep the folder small: it is looked at after every test."""
        for each in (path, path.with_suffix(".in"), path.with_suffix(".end")):
            each.unlink(missing_ok=True)
            self._read.pop(each, None)
            self._readers.pop(each, None)
        self._asked.pop(path.stem, None)
        self._versions.pop(path.stem, None)

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


def _is_unstable(call: Any) -> bool:
    """Return whether a client calls a method that ACP 1 has and that is not stable."""
    name = call.get("method") if isinstance(call, dict) else None
    method = methods.AGENT_METHODS.get(name) if isinstance(name, str) else None
    return method is not None and not method.stable


def _capabilities(call: Any) -> Any:
    params = call.get("params") if isinstance(call, dict) else None
    return (params.get("clientCapabilities") or {}) if isinstance(params, dict) else {}


def _is_over(path: Path) -> bool:
    """Whether nothing can be added: the conversation was closed, or its process has ended."""
    if path.with_suffix(".end").exists():
        return True
    try:
        os.kill(int(path.name.partition("-")[0]), 0)
    except ProcessLookupError:
        return True
    return False


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

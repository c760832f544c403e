"""Updates of a tool that shows more and more: each tells all of it, the disk keeps what is new.

ACP's updates of a tool call replace what was shown before, so a command that says 64 KiB in small
pieces sends thousands of times that. Recorded is, instead of a text that begins like the one before
it, what comes behind that beginning:

    "_grown": [characters that stay, checksum of the text they are of]

No input or output. Whoever records and whoever reads keep the same texts by the same rules.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

_GROWN: Final = "_grown"
_SHORTEST: Final = 512  # characters; less is not worth the trouble

Json = Mapping[str, Any]


class Growth:
    """The last text of each call that goes on."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def shortened(self, update: Json) -> Json | None:
        """Return what to record instead of `update`; None if it is to be recorded as it is."""
        call_id, text = _shown(update)
        before = self._texts.get(call_id)
        if before is None or text is None:
            return None
        kept = _common(before, text)
        if kept < _SHORTEST:
            return None
        return {**_with_text(update, text[kept:]), _GROWN: [kept, _checksum(before)]}

    def follow(self, update: Json) -> None:
        """Keep what a whole update shows, once it is recorded or read."""
        call_id, text = _shown(update)
        if update.get("status") in ("completed", "failed"):
            self._texts.pop(call_id, None)
        elif text is not None and len(text) >= _SHORTEST:
            self._texts[call_id] = text

    def restored(self, recorded: Json) -> Json | None:
        """Return the update that a recorded one was; None if what it continues is not there."""
        if _GROWN not in recorded:
            return recorded
        call_id, text = _shown(recorded)
        before = self._texts.get(call_id)
        match recorded[_GROWN]:
            case [int(kept), int(checksum)] if text is not None and before is not None:
                if checksum == _checksum(before):
                    whole = {key: value for key, value in recorded.items() if key != _GROWN}
                    return _with_text(whole, before[:kept] + text)
        return None


def _shown(update: Json) -> tuple[str, str | None]:
    """Return the call an update is of, and its text if it shows one text and nothing else."""
    match update:
        case {
            "sessionUpdate": "tool_call_update",
            "toolCallId": str(call_id),
            "content": [{"type": "content", "content": {"type": "text", "text": str(text)}}],
        }:
            return call_id, text
        case {"toolCallId": str(call_id)}:
            return call_id, None
        case _:
            return "", None


def _with_text(update: Json, text: str) -> dict[str, Any]:
    shown = update["content"][0]
    return {**update, "content": [{**shown, "content": {**shown["content"], "text": text}}]}


def _common(before: str, text: str) -> int:
    """Count the characters with which both begin; halving beats comparing one by one."""
    low, high = 0, min(len(before), len(text))
    while low < high:
        middle = (low + high + 1) // 2
        if before.startswith(text[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def _checksum(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))

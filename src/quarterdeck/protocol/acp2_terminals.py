"""Output of an agent's own terminals: bytes of ACP 2 as text of events. Pure.

ACP 2 sends bytes, cut anywhere, also inside a character; events have text. Each terminal has an
incremental decoder, and a running digest of its bytes instead of the bytes: it shows whether a
snapshot continues what was received, which is then only appended, in constant memory. An event
whose text is not exactly the bytes of its update has them in `extensions.acp2.data`.
"""

from __future__ import annotations

import base64
import binascii
import codecs
from collections import OrderedDict
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from quarterdeck.protocol.acp2_fields import ACP2, InvalidUpdate, JsonObject, take_id
from quarterdeck.protocol.normalization import Normalized

TERMINALS: Final = 1_000
_FACTS: Final = ("command", "cwd", "size")
_DECODER: Final = codecs.getincrementaldecoder("utf-8")


class DecodedOutput(NamedTuple):
    """Text of an event; `data` is the base64 of its bytes, if they are not those of the text."""

    text: str
    data: str | None


class OutputDecoder:
    """The output of one terminal, as far as the next piece needs it."""

    __slots__ = ("_decoder", "_digest", "_length")

    def __init__(self) -> None:
        self._decoder = _DECODER("replace")
        self._digest = blake2b(digest_size=16)
        self._length = 0

    def extended(self, piece: bytes) -> DecodedOutput:
        """Return the text of the bytes that were appended."""
        self._digest.update(piece)
        self._length += len(piece)
        text = self._decoder.decode(piece)
        if text.encode() == piece:
            return DecodedOutput(text, None)
        return DecodedOutput(text, base64.b64encode(piece).decode())

    def rest_of(self, snapshot: bytes) -> bytes | None:
        """Return what a snapshot adds to the output so far; None if it is another output."""
        begin = snapshot[: self._length]
        if len(begin) < self._length:
            return None
        digest = blake2b(begin, digest_size=16).digest()
        return snapshot[self._length :] if digest == self._digest.digest() else None


def decode_base64(value: object) -> bytes | None:
    """Return the bytes of a base64 text; None if it is not one."""
    if not isinstance(value, str):
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


class TerminalFold:
    """The terminals of one session."""

    def __init__(self, *, knows_all: bool = True) -> None:
        self._knows_all = knows_all
        self._terminals: OrderedDict[str, OutputDecoder] = OrderedDict()

    def output(self, fields: JsonObject) -> list[Normalized]:
        """Return the event of bytes that are appended."""
        terminal_id, data = take_id(fields, "terminalId"), decode_base64(fields.pop("data", None))
        if data is None:
            raise InvalidUpdate("the `data` of a terminal's output is not base64")
        decoded = self._terminal(terminal_id).extended(data)
        if decoded.data is not None:
            fields[ACP2] = {"data": decoded.data}
        if not data and not fields:
            return []
        payload = {"terminalId": terminal_id, "delta": decoded.text}
        return [Normalized("terminal-output", payload, fields or None)]

    def update(self, fields: JsonObject) -> list[Normalized]:
        """Return the events of an upsert."""
        terminal_id = take_id(fields, "terminalId")
        facts: JsonObject = {"terminalId": terminal_id}
        own: JsonObject = {}
        for key in _FACTS:
            if key in fields:
                facts[key] = fields.pop(key)
        if "capabilities" in fields:
            own["capabilities"] = offered = fields.pop("capabilities")
            can_cancel = isinstance(offered, dict) and offered.get("cancel") is not None
            facts["cancellable"] = None if offered is None else can_cancel
        grown: JsonObject = {}
        grown_own: JsonObject = {}
        if "output" in fields:
            self._snapshot(terminal_id, fields.pop("output"), (facts, own), (grown, grown_own))
        if "exitStatus" in fields:
            ending = fields.pop("exitStatus")
            if isinstance(ending, dict) and "output" not in facts:
                grown["exit"] = ending
            else:
                facts["exit"] = ending
        extensions = {**fields, **({ACP2: own} if own else {})}
        events: list[Normalized] = []
        if len(facts) > 1 or extensions:
            events.append(Normalized("terminal-update", facts, extensions or None))
        if grown:
            payload = {"terminalId": terminal_id, **grown}
            events.append(
                Normalized("terminal-output", payload, {ACP2: grown_own} if grown_own else None)
            )
        return events

    def _snapshot(
        self,
        terminal_id: str,
        output: Any,
        replaced: tuple[JsonObject, JsonObject],
        appended: tuple[JsonObject, JsonObject],
    ) -> None:
        """Note a whole output as what it appends, or as what replaces the output so far."""
        data = decode_base64(output.get("data")) if isinstance(output, dict) else None
        if output is not None and data is None:
            raise InvalidUpdate("the `output` of a terminal has no `data` in base64")
        is_known = self._knows_all or terminal_id in self._terminals
        rest = self._terminal(terminal_id).rest_of(data) if data is not None and is_known else None
        if rest is not None:
            decoded = self._terminal(terminal_id).extended(rest) if rest else None
            if decoded is not None:
                appended[0]["delta"] = decoded.text
                if decoded.data is not None:
                    appended[1]["data"] = decoded.data
            return
        self._terminals[terminal_id] = OutputDecoder()
        if data is None:
            replaced[0]["output"] = None
            return
        decoded = self._terminal(terminal_id).extended(data)
        replaced[0]["output"] = {"text": decoded.text}
        if decoded.data is not None:
            replaced[1]["data"] = decoded.data

    def _terminal(self, terminal_id: str) -> OutputDecoder:
        found = self._terminals.get(terminal_id)
        if found is None:
            found = self._terminals[terminal_id] = OutputDecoder()
            if len(self._terminals) > TERMINALS:
                self._terminals.popitem(last=False)
                self._knows_all = False
        return found

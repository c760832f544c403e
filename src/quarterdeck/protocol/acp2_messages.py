"""Messages of ACP 2 as events: chunks, and whole messages that begin one or replace it. Pure.

The fold remembers which messages exist, and a digest of the content of the newest ones: agents
repeat whole messages that did not change. Beyond its bounds it does not guess: the content of a
message that it may have forgotten is replaced as a whole, which is right in any case.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from quarterdeck.jsontext import encode_json
from quarterdeck.protocol.acp2_fields import (
    ACP2,
    InvalidUpdate,
    JsonObject,
    has_patch,
    take_id,
    take_list,
)
from quarterdeck.protocol.normalization import Normalized
from quarterdeck.protocol.payloads import MessageKind

MESSAGES: Final = 10_000  # messages known by id
DIGESTS: Final = 256  # messages whose content can be compared with a repeated one
_CHUNK_TYPES: Final[Mapping[MessageKind, str]] = {
    "user": "user-message-chunk",
    "agent": "agent-message-chunk",
    "thought": "agent-thought-chunk",
}


class _MessageDigest:
    """What a message contains, in constant memory; adjacent plain texts count as one."""

    __slots__ = ("_digest",)

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=16)

    def add(self, block: JsonObject) -> None:
        text = block.get("text") if len(block) == 2 and block.get("type") == "text" else None
        if isinstance(text, str):
            self._digest.update(text.encode(errors="surrogatepass"))
        else:
            self._digest.update(b"\0" + encode_json(block) + b"\0")

    @property
    def value(self) -> bytes:
        return self._digest.digest()


class MessageFold:
    """The messages of one session."""

    def __init__(self, *, knows_all: bool = True) -> None:
        self._messages: OrderedDict[tuple[MessageKind, str], _MessageDigest | None] = OrderedDict()
        self._digests: OrderedDict[tuple[MessageKind, str], None] = OrderedDict()
        self._knows_all_messages = knows_all
        self._newest: tuple[MessageKind, str] | None = None
        """The message of the newest chunk, and its digest."""
        self._newest_digest = _MessageDigest()

    def plain_chunk(self, kind: MessageKind, update: JsonObject) -> list[Normalized] | None:
        """Do what `chunk` does for an update of three fields: nearly all are. None: use `chunk`."""
        message_id, block = update.get("messageId"), update.get("content")
        if not isinstance(message_id, str) or not isinstance(block, dict):
            return None
        if self._newest != (kind, message_id):
            self._newest, self._newest_digest = (
                (kind, message_id),
                self._digest_of(kind, message_id),
            )
        self._newest_digest.add(block)
        return [Normalized(_CHUNK_TYPES[kind], {"messageId": message_id, "content": block})]

    def chunk(self, kind: MessageKind, fields: JsonObject) -> list[Normalized]:
        """Return the event of a block that is appended."""
        message_id, block = take_id(fields, "messageId"), fields.pop("content", None)
        if not isinstance(block, dict):
            raise InvalidUpdate("a chunk of a message needs `content`, one block")
        self._digest_of(kind, message_id).add(block)
        payload = {"messageId": message_id, "content": block}
        return [Normalized(_CHUNK_TYPES[kind], payload, fields or None)]

    def message(self, kind: MessageKind, fields: JsonObject) -> list[Normalized]:
        """Return the events of a whole message; none if it is what is known."""
        self._newest = None  # its digest may be replaced
        message_id = take_id(fields, "messageId")
        key = (kind, message_id)
        is_known = key in self._messages or not self._knows_all_messages
        has_content = "content" in fields
        content = take_list(fields, "content") or []
        is_patched = has_patch(fields, is_known=is_known)
        if not has_content and not is_patched:
            return []
        payload: JsonObject = {"kind": kind, "messageId": message_id}
        if not has_content:
            self._digest_of(kind, message_id)  # known from here on
            return [Normalized("message-update", payload, fields)]
        if not is_known and content:
            return self._whole_message(kind, message_id, content, fields)
        digest = _MessageDigest()
        for block in content:
            digest.add(block if isinstance(block, dict) else {"block": block})
        known = self._messages.get(key)
        is_same = known is not None and known.value == digest.value
        is_empty = not is_known and not content
        self._remember(key, digest)
        if (is_same or is_empty) and not is_patched:
            return []  # replay begins a message with an empty one
        payload["content"] = content
        return [Normalized("message-update", payload, fields or None)]

    def _whole_message(
        self, kind: MessageKind, message_id: str, content: list[Any], fields: JsonObject
    ) -> list[Normalized]:
        digest = self._digest_of(kind, message_id)
        events: list[Normalized] = []
        for block in content:
            digest.add(block if isinstance(block, dict) else {"block": block})
            payload = {"messageId": message_id, "content": block}
            extensions = {**fields, ACP2: {"whole": True}} if not events else None
            events.append(Normalized(_CHUNK_TYPES[kind], payload, extensions))
        return events

    def _digest_of(self, kind: MessageKind, message_id: str) -> _MessageDigest:
        """Return the digest of a message to add to; a new one if it was dropped or is unknown."""
        found = self._messages.get((kind, message_id))
        if found is None:
            is_new = (kind, message_id) not in self._messages and self._knows_all_messages
            found = _MessageDigest()
            self._remember((kind, message_id), found, is_complete=is_new)
        return found

    def _remember(
        self, key: tuple[MessageKind, str], digest: _MessageDigest, *, is_complete: bool = True
    ) -> None:
        self._messages[key] = digest if is_complete else None
        if is_complete:
            self._digests.pop(key, None)
            self._digests[key] = None
            if len(self._digests) > DIGESTS:
                oldest, _ = self._digests.popitem(last=False)
                if oldest in self._messages:
                    self._messages[oldest] = None
        if len(self._messages) > MESSAGES:
            oldest, _ = self._messages.popitem(last=False)
            self._knows_all_messages = False

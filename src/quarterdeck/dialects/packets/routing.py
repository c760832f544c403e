"""Where a page puts a packet when subagents run: on their card, or in the transcript."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from quarterdeck.dialects.packets.parsed import (
    ParsedPacket,
    TextChunk,
    ThinkingChunk,
    ToolProgress,
    ToolStart,
)

_NAME_LENGTH: Final = 40
_PREFIX: Final = "Spawning subagent: "


class ChildRoute(Struct, frozen=True):
    """Something that a subagent did."""

    session_id: str
    parent_session_id: str


class TaskRoute(Struct, frozen=True):
    """The call that runs a subagent."""

    subagent_session_id: str


class NormalRoute(Struct, frozen=True):
    """Everything else."""


Route: TypeAlias = ChildRoute | TaskRoute | NormalRoute


def route(packet: ParsedPacket) -> Route:
    """Say where a packet belongs; what a subagent did counts before what it is part of."""
    if not isinstance(packet, TextChunk | ThinkingChunk | ToolStart | ToolProgress):
        return NormalRoute()
    if packet.session_id and packet.parent_session_id:
        return ChildRoute(packet.session_id, packet.parent_session_id)
    if isinstance(packet, ToolStart | ToolProgress) and packet.subagent_session_id:
        return TaskRoute(packet.subagent_session_id)
    return NormalRoute()


def subagent_name(packet: ToolStart | ToolProgress) -> str:
    """Return a short name for the subagent that a call runs."""
    described = packet.description.removeprefix(_PREFIX) or packet.command
    name = described.strip().partition("\n")[0].strip() or packet.subagent_type or "subagent"
    return name if len(name) <= _NAME_LENGTH else f"{name[:_NAME_LENGTH]}…"

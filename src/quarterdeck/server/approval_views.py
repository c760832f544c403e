"""A permission request as people see it, and the digest of what they saw. Pure.

Buttons are named by what they do, never by the agent: an option that the agent calls "Deny" may be
of the kind that allows forever.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType, to_builtins

from quarterdeck.dialects.context import InspectedCall, ParsedCall

LABELS: Final[Mapping[str, str]] = {
    "allow_once": "Allow once",
    "allow_always": "Allow always",
    "reject_once": "Reject",
    "reject_always": "Reject always",
}
MOST_SHOWN: Final = 80  # characters of what an agent calls an option of an unknown kind


class OptionView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A button."""

    option_id: str
    kind: str
    label: str


class CallView(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a call would do, by its input."""

    tool_call_id: str
    name: str
    kind: str | None
    agent_says: str
    """The agent's own words; they prove nothing."""
    description: str
    command: str | None
    paths: tuple[str, ...]
    reads: bool
    writes: bool
    searches: bool
    risk: str
    risk_reason: str
    is_inspectable: bool
    """Whether its input says what it does."""


class PermissionCard(Struct, frozen=True, kw_only=True, rename="camel"):
    """A permission request that waits."""

    request_id: str
    session_id: str
    agent_id: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    """The name under which the agent is set up."""
    cwd: str
    title: str | UnsetType | None = UNSET
    """The session's, as the list of sessions has it."""
    tool_call: Any
    """As the agent sent it."""
    call: CallView
    options: tuple[OptionView, ...]
    is_ambiguous: bool
    """Two options have the same id: no answer but `cancelled` says what is meant."""
    digest: str
    """Has to come back with the answer."""
    asked_at: str
    expires_at: str | UnsetType = UNSET


def digest_of(session_id: str, request_id: str, tool_call: Any, options: Any) -> str:
    """Return the SHA-256 of what is requested."""
    shown = {
        "sessionId": session_id,
        "requestId": request_id,
        "toolCall": tool_call,
        "options": list(options) if isinstance(options, list | tuple) else [],
    }
    canonical = json.dumps(shown, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def derived_from(card: PermissionCard) -> dict[str, Any]:
    """Return `extensions.quarterdeck.request`: what was derived, without a copy of the tool call.

    With the event's payload it is the whole card, so no surface has to fetch it.
    """
    derived: dict[str, Any] = {
        "digest": card.digest,
        "call": to_builtins(card.call),
        "options": to_builtins(card.options),
        "isAmbiguous": card.is_ambiguous,
        "cwd": card.cwd,
        "requestedAt": card.asked_at,
    }
    if card.agent is not UNSET:
        derived["agent"] = card.agent
    if card.expires_at is not UNSET:
        derived["expiresAt"] = card.expires_at
    return derived


def option_views(options: Sequence[Any]) -> tuple[OptionView, ...]:
    return tuple(_option(each) for each in options if isinstance(each, Mapping))


def is_ambiguous(options: Sequence[OptionView]) -> bool:
    ids = [option.option_id for option in options]
    return len(set(ids)) != len(ids)


def _option(option: Mapping[str, Any]) -> OptionView:
    kind = option.get("kind")
    kind = kind if isinstance(kind, str) else ""
    label = LABELS.get(kind)
    if label is None:
        label = f"Other choice (agent calls it {visible(str(option.get('name')))!s})"
    return OptionView(option_id=str(option.get("optionId")), kind=kind, label=label)


def visible(text: str) -> str:
    """Return a text of an agent with everything escaped that is not seen, or turns others around.

    A long one keeps its beginning and its end.
    """
    if len(text) > MOST_SHOWN:
        text = f"{text[: MOST_SHOWN // 2]}…{text[-MOST_SHOWN // 2 :]}"
    return "".join(each if _is_plain(each) else f"\\u{{{ord(each):x}}}" for each in text)


def _is_plain(character: str) -> bool:
    # C: controls, formats (bidirectional, zero width), surrogates; Z but the space: odd blanks.
    category = unicodedata.category(character)
    return character == " " or category[0] not in "CZ"


def call_view(call: InspectedCall) -> CallView:
    parsed = call.parsed
    return CallView(
        tool_call_id=call.tool_call_id,
        name=call.name,
        kind=call.kind,
        agent_says=call.title,
        description=call.description,
        command=call.command,
        paths=parsed.paths,
        reads=parsed.is_read,
        writes=parsed.is_write,
        searches=parsed.is_search,
        risk=call.risk,
        risk_reason=call.risk_reason,
        is_inspectable=parsed != ParsedCall(),
    )

"""A permission request as people see it, what a decision about it needs, how answers are worded.

`PermissionCard` is shown; its digest proves what was shown. Buttons are named by what they do,
never by the agent alone: an option that the agent calls "Deny" may be of the kind that allows
forever. Where several do the same, the agent's name for each is added.
`InspectedRequest` adds the call that the rules examine. Everything here is pure.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType, to_builtins
from msgspec.structs import replace

from quarterdeck.errors import RequestRejected
from quarterdeck.host import PermissionRequest
from quarterdeck.policy import Call, assess_risk
from quarterdeck.protocol.results import resolution_meta
from quarterdeck.runner.permissions.decision_index import (
    MOST_REASON,
    DecidedBy,
    IndexEntry,
    RecordedDecision,
    decided_by_json,
)

LABELS: Final[Mapping[str, str]] = {
    "allow_once": "Allow once",
    "allow_always": "Allow always",
    "reject_once": "Reject",
    "reject_always": "Reject always",
}
MOST_NAMED: Final = 20  # keys that are not understood
_EXPLAINING: Final = ("description", "summary", "explanation", "justification", "reason")
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
    """The title: the agent's own words, which prove nothing."""
    agent_explains: str | None
    """The description in the input: the agent's own words as well."""
    description: str
    command: str | None
    """All of `commands`, each on a line of its own."""
    commands: tuple[str, ...]
    """What would be run, never from the title."""
    folders: tuple[str, ...]
    """Where it would be run, if the input names a folder."""
    variables: tuple[str, ...]
    """Names of variables that it would set, without harmless ones."""
    paths: tuple[str, ...]
    """With what they lead to through symbolic links."""
    addresses: tuple[str, ...]
    reads: bool
    writes: bool
    searches: bool
    fetches: bool
    risk: str
    risk_reason: str
    is_inspectable: bool
    """Whether it is shown what it does."""
    source: str
    """Where that was found: "input", "content", "turn" (other open calls of the turn), "title" or
    "none"; the last two are not inspectable."""
    unknown: tuple[str, ...]
    """Keys of the input that are not understood; while there are any, no rule allows the call."""


class PermissionCard(Struct, frozen=True, kw_only=True, rename="camel"):
    """A permission request that waits."""

    request_id: str
    session_id: str
    parent_session_id: str | UnsetType = UNSET
    """The session whose sub-agent asks."""
    agent_id: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    """The name under which the agent is set up."""
    cwd: str
    title: str | UnsetType | None = UNSET
    """The session's, as the list of sessions has it."""
    tool_call: Any
    """As the agent sent it, with what it sent of the call before and did not repeat."""
    call: CallView
    options: tuple[OptionView, ...]
    is_ambiguous: bool
    """Two options have the same id: no answer but `cancelled` says what is meant."""
    digest: str
    """Has to come back with the answer."""
    requested_at: str
    expires_at: str | UnsetType = UNSET
    asked_because: str | UnsetType = UNSET
    """Why the rules left it to a person, when it was requested; absent if a rule decided."""


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


def derived_from(card: PermissionCard, given: Any) -> dict[str, Any]:
    """Return `extensions.quarterdeck.request`: what was derived, without the call as it was given.

    With the event's payload it is the whole card, so no surface has to fetch it. `knownBefore` has
    the fields of the call that the agent sent before its request and did not repeat in it.
    """
    derived: dict[str, Any] = {
        "digest": card.digest,
        "call": to_builtins(card.call),
        "options": to_builtins(card.options),
        "isAmbiguous": card.is_ambiguous,
        "cwd": card.cwd,
        "requestedAt": card.requested_at,
    }
    if card.agent is not UNSET:
        derived["agent"] = card.agent
    if card.expires_at is not UNSET:
        derived["expiresAt"] = card.expires_at
    if card.asked_because is not UNSET:
        derived["askedBecause"] = card.asked_because
    if isinstance(given, Mapping) and isinstance(card.tool_call, Mapping):
        before = {name: each for name, each in card.tool_call.items() if given.get(name) != each}
        if before:
            derived["knownBefore"] = before
    return derived


def option_views(options: Sequence[Any]) -> tuple[OptionView, ...]:
    """Return the buttons of a request; no two have the same label.

    If an agent's names repeat as well, all options of that kind are numbered: a number on some
    could be a part of another's name.
    """
    named = [each for each in options if isinstance(each, Mapping)]
    views = [_option(each) for each in named]
    for label, count in Counter(view.label for view in views).items():
        if count == 1:
            continue
        group = [index for index, view in enumerate(views) if view.label == label]
        words = [f"{label}: {visible(str(named[index].get('name')))}" for index in group]
        if len(set(words)) < len(words):
            words = [f"{each} ({number})" for number, each in enumerate(words, 1)]
        for index, each in zip(group, words, strict=True):
            views[index] = replace(views[index], label=each)
    return tuple(views)


def is_ambiguous(options: Sequence[OptionView]) -> bool:
    ids = [option.option_id for option in options]
    return len(set(ids)) != len(ids)


def _option(option: Mapping[str, Any]) -> OptionView:
    kind = option.get("kind")
    kind = kind if isinstance(kind, str) else ""
    label = LABELS.get(kind)
    if label is None:
        label = f"Other choice (the agent calls it {visible(str(option.get('name')))!s})"
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


def call_view(call: Call) -> CallView:
    reading, risk = call.reading, assess_risk(call)
    return CallView(
        tool_call_id=call.id,
        name=call.name,
        kind=call.kind,
        agent_says=call.title,
        agent_explains=_explanation(call.input),
        description=call.description,
        command=call.command,
        commands=call.commands,
        folders=reading.folders,
        variables=tuple(visible(each.partition("=")[0]) for each in reading.variables),
        paths=reading.paths,
        addresses=reading.addresses,
        reads=reading.is_read,
        writes=reading.is_write,
        searches=reading.is_search,
        fetches=reading.is_fetch,
        risk=risk.level,
        risk_reason=risk.reason,
        is_inspectable=reading.is_readable,
        source=reading.source,
        unknown=tuple(visible(each) for each in reading.unknown[:MOST_NAMED]),
    )


def _explanation(given: Any) -> str | None:
    """Return what the agent says about its call inside the input."""
    if not isinstance(given, Mapping):
        return None
    texts = [given.get(key) for key in _EXPLAINING]
    return next((text[:MOST_REASON] for text in texts if isinstance(text, str) and text), None)


_CANCELLED: Final = {"outcome": "cancelled"}


@dataclass(frozen=True)
class InspectedRequest:
    """A permission request, pending or about to be decided, with all that a decision needs."""

    card: PermissionCard
    call: Call

    def with_reason(self, because: str) -> InspectedRequest:
        """Return it with the reason why a person decides."""
        return InspectedRequest(replace(self.card, asked_because=because), self.call)

    def outcome(self, option_id: str | None) -> dict[str, Any]:
        """Return what is sent to the agent for a choice.

        Raises:
            RequestRejected: if there is no such option, or two.
        """
        if option_id is None:
            return dict(_CANCELLED)
        if self.card.is_ambiguous:
            message = (
                "two options of this request have the same id, so an answer would be ambiguous; "
                "answer with cancelled"
            )
            raise RequestRejected("ambiguous", message)
        if any(option.option_id == option_id for option in self.card.options):
            return {"outcome": "selected", "optionId": option_id}
        choices = ", ".join(option.option_id for option in self.card.options) or "none"
        raise RequestRejected(
            "invalid", f"{option_id!r} is not an option of this request; use one of: {choices}"
        )


def inspection_of(request: PermissionRequest) -> InspectedRequest | None:
    """Return what `PermissionInbox.examine` kept with a request; None if it failed."""
    kept = request.hook_data
    return kept if isinstance(kept, InspectedRequest) else None


def inspect_request(
    request: PermissionRequest,
    call: Call,
    *,
    requested_at: str,
    expires_at: str | None,
) -> InspectedRequest:
    """Inspect a request for a call."""
    session = request.session
    tool_call = whole_call(request)
    options = option_views(request.options if isinstance(request.options, list) else ())
    card = PermissionCard(
        request_id=request.id,
        session_id=session.id,
        parent_session_id=UNSET if session.parent_id is None else session.parent_id,
        agent_id=UNSET if request.agent_id is None else request.agent_id,
        agent=UNSET if session.definition_id is None else session.definition_id,
        cwd=session.folders.cwd,
        title=session.title,
        tool_call=tool_call,
        call=call_view(call),
        options=options,
        is_ambiguous=is_ambiguous(options),
        digest=digest_of(session.id, request.id, tool_call, request.options),
        requested_at=requested_at,
        expires_at=UNSET if expires_at is None else expires_at,
    )
    return InspectedRequest(card, call)


def whole_call(request: PermissionRequest) -> Any:
    """Return the call of a request with what is known of it and the request does not repeat.

    A request updates its call: an agent that has announced a diff asks without it.
    """
    given: Any = request.tool_call
    if not isinstance(given, Mapping) or request.earlier is None:
        return given
    known = {
        "kind": request.earlier.kind,
        "content": list(request.earlier.content),
        "locations": list(request.earlier.locations),
        "rawInput": request.earlier.raw_input,
    }
    more = {name: value for name, value in known.items() if given.get(name) is None}
    return {**given, **{name: value for name, value in more.items() if value}}


def sent_outcome(outcome: Mapping[str, Any], by: DecidedBy) -> dict[str, Any]:
    """Return what goes to the agent; `_meta` names a rule, a timeout, or a person's reason."""
    sent = dict(outcome)
    if by.kind == "policy":
        rule = "" if by.rule is UNSET else f": {by.rule}"
        sent["_meta"] = resolution_meta("policy", f"the hub's policy{rule}")
    elif by.kind == "expiry":
        sent["_meta"] = resolution_meta("timeout", "not answered in time")
    elif by.reason is not UNSET:
        sent["_meta"] = resolution_meta("user", by.reason)
    return sent


def reason_in_meta(outcome: Mapping[str, Any]) -> str:
    """Return the reason that a client put into the `_meta` of an outcome, "" if there is none.

    Raises:
        RequestRejected: if it is too long.
    """
    meta = outcome.get("_meta")
    ours = meta.get("quarterdeck") if isinstance(meta, Mapping) else None
    reason = ours.get("reason") if isinstance(ours, Mapping) else None
    if not isinstance(reason, str):
        return ""
    if len(reason) > MOST_REASON:
        raise RequestRejected(
            "invalid", f"the reason is longer than {MOST_REASON} characters; shorten it"
        )
    return reason


def rejecting_option(options: Sequence[OptionView]) -> str | None:
    """Return the option that refuses once; without one, or if it is not clear, it is cancelled."""
    if is_ambiguous(options):
        return None
    return next((each.option_id for each in options if each.kind == "reject_once"), None)


def is_retry(entry: IndexEntry, by: DecidedBy, key: str | None) -> bool:
    """Return whether an answer is the one that was recorded, sent again: same device, same key."""
    decided = entry.decision.by
    if key is None or key != entry.key or decided is UNSET:
        return False
    return decided.device_id == by.device_id


def recorded_answer(decision: RecordedDecision) -> dict[str, Any]:
    return {
        "requestId": decision.request_id,
        "outcome": decision.outcome,
        "by": {} if decision.by is UNSET else decided_by_json(decision.by),
        "decidedAt": None if decision.decided_at is UNSET else decision.decided_at,
    }


def withdrawn_error(request_id: str) -> RequestRejected:
    message = f"request {request_id} was withdrawn: its turn was cancelled, or its agent ended"
    return RequestRejected("gone", message)

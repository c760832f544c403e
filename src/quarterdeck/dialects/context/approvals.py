"""Permission requests: what is asked, what it would do, and how it was answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from quarterdeck.dialects.context.calls import ToolCall, objects
from quarterdeck.dialects.context.events import ApprovalRequestedEvent, ApprovalResolvedEvent
from quarterdeck.dialects.context.inspection import parsed_call
from quarterdeck.dialects.context.outputs import changes_of, content_text
from quarterdeck.dialects.context.policy import ParsedCall
from quarterdeck.dialects.context.shapes import (
    ApprovalPreview,
    CommandPreview,
    DescriptionPreview,
    DiffPreview,
    ResolvedBy,
)
from quarterdeck.dialects.context.stage import Stage
from quarterdeck.dialects.context.toolcalls import ToolCalls, description_of, risk_of
from quarterdeck.dialects.context.tools import text_of
from quarterdeck.protocol.timestamps import iso_time

_WORKING_DIRECTORY: Final = ("cwd", "workdir", "working_directory", "directory")


class PendingApproval(NamedTuple):
    """A request that waits, with all that a decision needs."""

    request_id: str
    tool_call_id: str
    call: ParsedCall
    options: tuple[Mapping[str, Any], ...]


class Approvals:
    """The requests that wait for an answer."""

    def __init__(
        self, stage: Stage, calls: ToolCalls, project: str, expiry_ms: float | None
    ) -> None:
        self._stage = stage
        self._calls = calls
        self._project = project
        self._expiry_ms = expiry_ms
        self._pending: dict[str, PendingApproval] = {}

    @property
    def is_waiting(self) -> bool:
        return bool(self._pending)

    @property
    def pending(self) -> tuple[PendingApproval, ...]:
        return tuple(self._pending.values())

    def requested(self, payload: dict[str, Any]) -> None:
        asked = payload.get("toolCall")
        call = self._calls.ask(asked if isinstance(asked, dict) else {})
        request_id = str(payload.get("requestId"))
        self._pending[request_id] = PendingApproval(
            request_id, call.id, parsed_call(call), tuple(objects(payload.get("options")))
        )
        expiry = self._expiry_ms
        self._stage.emit(
            ApprovalRequestedEvent,
            request_id=request_id,
            tool_call_id=call.id,
            tool_name=call.name,
            tool_input=call.input,
            description=description_of(call),
            risk_level=risk_of(call),
            expires_at=None if expiry is None else iso_time(self._stage.ts + expiry),
            preview=self._preview(call),
        )

    def _preview(self, call: ToolCall) -> ApprovalPreview:
        changes = changes_of(call, self._project)
        shown = [change for change in changes if change.diff is not None]
        if shown:
            path = ", ".join(change.path for change in shown)
            return DiffPreview(path=path, diff="".join(change.diff or "" for change in shown))
        if call.command is not None:
            folder = text_of(call.raw_input, _WORKING_DIRECTORY) or self._project
            return CommandPreview(command=call.command, working_dir=folder)
        lines = [description_of(call), content_text(call)]
        return DescriptionPreview(text="\n".join(line for line in lines if line))

    def resolved(self, payload: dict[str, Any]) -> None:
        request_id = str(payload.get("requestId"))
        pending = self._pending.pop(request_id, None)
        if pending is not None:
            self._calls.answered(pending.tool_call_id)
        outcome = payload.get("outcome")
        chosen: dict[str, Any] = outcome if isinstance(outcome, dict) else {}
        kind = _kind(pending, chosen.get("optionId"))
        is_answered = payload.get("status") == "answered"
        by, reason = _answered(chosen) if is_answered else ("policy", "superseded")
        self._stage.emit(
            ApprovalResolvedEvent,
            request_id=request_id,
            tool_call_id="" if pending is None else pending.tool_call_id,
            approved=kind is not None and kind.startswith("allow"),
            resolved_by=by,
            reason=reason,
            option_kind=kind,
        )

    def end_all(self, reason: str) -> None:
        """Resolve what nobody will answer any more."""
        for pending in self._pending.values():
            self._stage.emit(
                ApprovalResolvedEvent,
                request_id=pending.request_id,
                tool_call_id=pending.tool_call_id,
                approved=False,
                resolved_by="policy",
                reason=reason,
            )
        self._pending.clear()


def _kind(pending: PendingApproval | None, option_id: object) -> str | None:
    for option in () if pending is None else pending.options:
        if option.get("optionId") == option_id:
            kind = option.get("kind")
            return kind if isinstance(kind, str) else None
    return None


def resolution(by: ResolvedBy, reason: str | None = None) -> dict[str, Any]:
    """Return the `_meta` of an outcome that says who decided and why; the log keeps it."""
    facts = {"resolvedBy": by} if reason is None else {"resolvedBy": by, "reason": reason}
    return {"quarterdeck": facts}


def _answered(outcome: dict[str, Any]) -> tuple[ResolvedBy, str | None]:
    meta = outcome.get("_meta")
    ours = meta.get("quarterdeck") if isinstance(meta, dict) else None
    facts = ours if isinstance(ours, dict) else {}
    by, reason = facts.get("resolvedBy"), facts.get("reason")
    if not isinstance(reason, str):
        reason = "cancelled" if outcome.get("outcome") == "cancelled" else None
    if by == "policy":
        return "policy", reason
    return "timeout" if by == "timeout" else "user", reason

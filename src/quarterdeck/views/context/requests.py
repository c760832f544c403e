"""Permission requests and elicitations as `approval:*` and `interaction:question` events.

`ApprovalProjector` emits a permission request with what its tool call would do (`PendingApproval`)
and, later, its decision.

`ElicitationProjector` emits an elicitation as questions, the protocol's word, with an answer in
words:

    form with one field      one question; the options of the field are those of the question
    form with several        one question for each field that is required, or for each if none is
    form without fields,
    link to a page           one question: accept or decline

An elicitation is emitted once. Its decision is a `custom` event, because the protocol has none for
it and every view that shows a question has to remove it.

`response_to` casts each answer to the type of its field: a title or a value of an enumeration, yes
or no, a number, several titles separated by commas. An empty answer declines, or omits a field that
is not required.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from quarterdeck.errors import AcpError
from quarterdeck.policy import Call, text_of
from quarterdeck.protocol import ERROR_CODES
from quarterdeck.protocol.timestamps import iso_time
from quarterdeck.views.context.call_state import NamedToolCall, objects
from quarterdeck.views.context.events import (
    ApprovalRequestedEvent,
    ApprovalResolvedEvent,
    NotificationEvent,
    UserQuestionEvent,
)
from quarterdeck.views.context.numbering import EventNumbering
from quarterdeck.views.context.tool_calls import ToolCallProjector, description_of, risk_of
from quarterdeck.views.context.tool_results import changes_of, content_text
from quarterdeck.views.context.types import (
    ApprovalPreview,
    CommandPreview,
    DescriptionPreview,
    DiffPreview,
    ResolvedBy,
)

_WORKING_DIRECTORY: Final = ("cwd", "workdir", "working_directory", "directory")


class PendingApproval(NamedTuple):
    """A pending permission request, with everything that a decision needs."""

    request_id: str
    tool_call_id: str
    call: Call
    options: tuple[Mapping[str, Any], ...]


class ApprovalProjector:
    """Holds the pending permission requests of a session."""

    def __init__(
        self,
        numbering: EventNumbering,
        calls: ToolCallProjector,
        project: str,
        expiry_ms: float | None,
    ) -> None:
        self._numbering = numbering
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

    def requested(self, payload: dict[str, Any], more: Mapping[str, Any]) -> None:
        """Emit a request; `more` are the extensions of its event, with what the host derived."""
        tool_call = payload.get("toolCall")
        call = self._calls.request(tool_call if isinstance(tool_call, dict) else {})
        request_id = str(payload.get("requestId"))
        self._pending[request_id] = PendingApproval(
            request_id, call.id, call.as_call(), tuple(objects(payload.get("options")))
        )
        self._numbering.emit(
            ApprovalRequestedEvent,
            request_id=request_id,
            tool_call_id=call.id,
            tool_name=call.name,
            tool_input=call.input,
            description=description_of(call),
            risk_level=risk_of(call),
            expires_at=self._expires_at(more),
            preview=self._preview(call),
        )

    def _expires_at(self, more: Mapping[str, Any]) -> str | None:
        """Return when a request is rejected: as it was stored with it, else by our own setting."""
        ours = more.get("quarterdeck")
        derived = ours.get("request") if isinstance(ours, dict) else None
        stored = derived.get("expiresAt") if isinstance(derived, dict) else None
        if isinstance(stored, str):
            return stored
        return None if self._expiry_ms is None else iso_time(self._numbering.ts + self._expiry_ms)

    def _preview(self, call: NamedToolCall) -> ApprovalPreview:
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
            self._calls.decided(pending.tool_call_id)
        outcome = payload.get("outcome")
        chosen: dict[str, Any] = outcome if isinstance(outcome, dict) else {}
        kind = _kind(pending, chosen.get("optionId"))
        is_answered = payload.get("status") == "answered"
        by, reason = _answered(chosen) if is_answered else ("policy", "superseded")
        self._numbering.emit(
            ApprovalResolvedEvent,
            request_id=request_id,
            tool_call_id="" if pending is None else pending.tool_call_id,
            approved=kind is not None and kind.startswith("allow"),
            resolved_by=by,
            reason=reason,
            option_kind=kind,
        )

    def mismatched(self, payload: dict[str, Any]) -> None:
        """Report a call that is not what was shown: a warning, and the details."""
        self._numbering.emit(
            NotificationEvent,
            level="warning",
            title="Not what was approved",
            message=_difference(payload.get("differences")),
        )
        self._numbering.custom("approval-mismatch", payload, namespace="quarterdeck")

    def end_all(self, reason: str) -> None:
        """Resolve the requests that can no longer be answered."""
        for pending in self._pending.values():
            self._numbering.emit(
                ApprovalResolvedEvent,
                request_id=pending.request_id,
                tool_call_id=pending.tool_call_id,
                approved=False,
                resolved_by="policy",
                reason=reason,
            )
        self._pending.clear()


def _difference(differences: object) -> str:
    """Describe the first difference between what was shown and what was done."""
    first = next(iter(objects(differences)), {})
    shown, done = (", ".join(map(str, first.get(key) or ["nothing"])) for key in ("shown", "done"))
    return f"The agent did something other than what was approved. Shown: {shown}. Done: {done}."


def _kind(pending: PendingApproval | None, option_id: object) -> str | None:
    for option in () if pending is None else pending.options:
        if option.get("optionId") == option_id:
            kind = option.get("kind")
            return kind if isinstance(kind, str) else None
    return None


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


# ---- forms -----------------------------------------------------------------------------------

_LARGEST: Final = 2**53  # the largest integer that every JSON reader keeps
CONSENT: Final = ("accept", "decline")
_YES: Final = frozenset({"yes", "true", "y", "1", "on", "accept", "ok"})
_NO: Final = frozenset({"no", "false", "n", "0", "off", "decline", "cancel"})


class FormField(NamedTuple):
    """One question; `field` is None if the only answers are accept and decline."""

    id: str
    text: str
    field: str | None = None
    schema: Mapping[str, Any] = {}
    is_required: bool = True
    options: tuple[str, ...] | None = None
    default: str | None = None
    label: str = ""
    """The title and description of the field, without the message of the form."""


class PendingForm(NamedTuple):
    """A pending elicitation: several questions, one response."""

    request_id: str
    questions: tuple[FormField, ...]


def questions_of(request_id: str, request: Mapping[str, Any]) -> tuple[FormField, ...]:
    """Return the questions that have to be answered: the required ones, or all if none is."""
    questions = every_question_of(request_id, request)
    return tuple(each for each in questions if each.is_required) or questions


def every_question_of(request_id: str, request: Mapping[str, Any]) -> tuple[FormField, ...]:
    """Return all questions, including those of optional fields."""
    message = _text(request.get("message")) or "The agent asks for your consent."
    fields = {} if request.get("mode") == "url" else _fields(request)
    if not fields:
        return (FormField(request_id, message, options=CONSENT),)
    required = _required(request)
    if len(fields) == 1:
        ((name, schema),) = fields.items()
        text = "\n".join(part for part in (message, _text(schema.get("description"))) if part)
        return (_question(request_id, text, name, schema, is_required=True),)
    return tuple(
        _question(
            f"{request_id}#{name}",
            f"{message}\n{_label(name, fields[name])}",
            name,
            fields[name],
            is_required=name in required,
        )
        for name in fields
    )


def response_to(pending: PendingForm, answers: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the response to an elicitation; None while answers are missing.

    Raises:
        AcpError: `acpjs/config-invalid` if an answer does not fit its question.
    """
    content: dict[str, Any] = {}
    for question in pending.questions:
        given = answers.get(question.id)
        if given is None:
            continue
        if not given.strip():
            if question.is_required:
                return {"action": "decline"}
        elif question.field is not None:
            content[question.field] = _value(question.schema, given.strip())
        elif not _flag(given):
            return {"action": "decline"}
    is_complete = all(question.id in answers for question in pending.questions)
    if not is_complete:
        return None
    has_fields = pending.questions[0].field is not None
    return {"action": "accept", "content": content} if has_fields else {"action": "accept"}


# ---- questions -----------------------------------------------------------------------------


def _fields(request: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    form = request.get("requestedSchema")
    properties = form.get("properties") if isinstance(form, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {name: each for name, each in properties.items() if isinstance(each, dict)}


def _required(request: Mapping[str, Any]) -> frozenset[str]:
    form = request.get("requestedSchema")
    listed = form.get("required") if isinstance(form, dict) else None
    names = listed if isinstance(listed, list) else ()
    return frozenset(each for each in names if isinstance(each, str))


def _question(
    question_id: str, text: str, name: str, schema: Mapping[str, Any], *, is_required: bool
) -> FormField:
    choices = _choices(schema)
    options = tuple(choices) or (("yes", "no") if schema.get("type") == "boolean" else None)
    default = _default(schema, choices)
    label = _label(name, schema)
    return FormField(question_id, text, name, schema, is_required, options, default, label)


def _choices(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of an enumeration by their titles."""
    items = schema.get("items")
    holder = items if isinstance(items, dict) else schema
    for key in ("oneOf", "anyOf"):
        listed = holder.get(key)
        if isinstance(listed, list):
            titled = [each for each in listed if isinstance(each, dict)]
            return {
                _text(each.get("title")) or str(each["const"]): str(each["const"])
                for each in titled
                if "const" in each
            }
    values = holder.get("enum")
    if not isinstance(values, list):
        return {}
    names = holder.get("enumNames")
    titles = names if isinstance(names, list) and len(names) == len(values) else values
    return {str(title): str(value) for title, value in zip(titles, values, strict=True)}


def _default(schema: Mapping[str, Any], choices: Mapping[str, str]) -> str | None:
    value = schema.get("default")
    titles = {each: title for title, each in choices.items()}
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(titles.get(str(each), str(each)) for each in value)
    return titles.get(str(value), str(value)) if isinstance(value, str | int | float) else None


def _label(name: str, schema: Mapping[str, Any]) -> str:
    described = _text(schema.get("description"))
    label = _text(schema.get("title")) or name
    return f"{label}: {described}" if described else label


# ---- answers -------------------------------------------------------------------------------


def _value(schema: Mapping[str, Any], answer: str) -> Any:
    kind, choices = schema.get("type"), _choices(schema)
    if kind == "boolean":
        return _flag(answer)
    if kind in ("integer", "number"):
        return _number(schema, answer)
    if kind == "array":
        parts = [part.strip() for part in answer.split(",")]
        chosen = [_chosen(choices, part) for part in parts if part]
        _check_size(schema, len(chosen), "Items", "choices")
        return chosen
    if choices:
        return _chosen(choices, answer)
    _check_size(schema, len(answer), "Length", "characters")
    return answer


def _flag(answer: str) -> bool:
    word = answer.strip().casefold()
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise _invalid(f"{answer!r} is neither yes nor no")


def _number(schema: Mapping[str, Any], answer: str) -> float:
    is_whole = schema.get("type") == "integer"
    try:
        value = int(answer) if is_whole else float(answer)
    except ValueError as error:
        wanted = "a whole number" if is_whole else "a number"
        raise _invalid(f"{answer[:40]!r} is not {wanted}") from error
    least, most = schema.get("minimum"), schema.get("maximum")
    is_low = isinstance(least, int | float) and value < least
    is_high = isinstance(most, int | float) and value > most
    if not abs(value) < _LARGEST or is_low or is_high:  # NaN is not less than anything
        raise _invalid(f"{answer[:40]!r} is out of range: from {least} to {most}")
    return value


def _chosen(choices: Mapping[str, str], answer: str) -> str:
    for title, value in choices.items():
        if answer.casefold() in (title.casefold(), value.casefold()):
            return value
    raise _invalid(f"{answer!r} is not one of: {', '.join(choices)}")


def _check_size(schema: Mapping[str, Any], size: int, what: str, unit: str) -> None:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    if (isinstance(least, int) and size < least) or (isinstance(most, int) and size > most):
        raise _invalid(f"the answer has {size} {unit}; it needs from {least} to {most}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _invalid(message: str) -> AcpError:
    return AcpError(ERROR_CODES["config_invalid"], message)


# ---- elicitations ----------------------------------------------------------------------------

EVENT_NAME = "elicitation"


class ElicitationProjector:
    """Holds the pending elicitations of a session."""

    def __init__(self, numbering: EventNumbering) -> None:
        self._numbering = numbering
        self.waiting: dict[str, PendingForm] = {}

    @property
    def pending(self) -> tuple[PendingForm, ...]:
        return tuple(self.waiting.values())

    def update(self, payload: dict[str, Any]) -> str:
        """Apply the status of an elicitation; return the reason for a change of status."""
        request_id, status = str(payload.get("requestId")), payload.get("status")
        given = payload.get("request")
        request = given if isinstance(given, dict) else {}
        if payload.get("completed") is True:
            self._completed(request)
        if status == "pending" and request_id not in self.waiting:
            self._requested(request_id, request)
            return "the agent asks a question"
        if status != "pending" and self.waiting.pop(request_id, None) is not None:
            facts = {"requestId": request_id, "status": status, "action": payload.get("action")}
            known = {key: value for key, value in facts.items() if isinstance(value, str)}
            self._numbering.custom(EVENT_NAME, known)
        return "the question was answered" if status == "answered" else "the question was withdrawn"

    def _requested(self, request_id: str, request: dict[str, Any]) -> None:
        questions = questions_of(request_id, request)
        self.waiting[request_id] = PendingForm(request_id, questions)
        url = text_of(request, ("url",)) if request.get("mode") == "url" else None
        if url is not None:
            self._notify("info", "The agent sends you to a page", request, url)
        elif len(questions) > 1:
            data = {"requestId": request_id, "status": "pending", "request": request}
            self._numbering.custom(EVENT_NAME, data)
        for question in questions:
            self._numbering.emit(
                UserQuestionEvent,
                question_id=question.id,
                question=question.text,
                options=question.options,
                default_value=question.default,
            )

    def _completed(self, request: dict[str, Any]) -> None:
        self._notify("success", "Done on the page", request, None)

    def _notify(self, level: str, title: str, request: dict[str, Any], url: str | None) -> None:
        message = text_of(request, ("message",)) or ""
        self._numbering.emit(
            NotificationEvent, level=level, title=title, message=message, action_url=url
        )

    def end_all(self, reason: str) -> None:
        """Withdraw the elicitations that can no longer be answered."""
        for request_id in self.waiting:
            facts = {"requestId": request_id, "status": "superseded", "reason": reason}
            self._numbering.custom(EVENT_NAME, facts)
        self.waiting.clear()

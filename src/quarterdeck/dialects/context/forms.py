"""Forms that agents let people fill in, as questions with an answer in words; pure.

    form with one field      one question; the options of the field are those of the question
    form with several        one question for each field that is required, or for each if none is
    form without fields,
    page to visit            one question: accept or decline

An answer is cast to the type of its field: a title or a value of an enumeration, yes or no, a
number, several titles with commas between them. An empty answer declines, or leaves a field out
that is not required.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from quarterdeck.errors import AcpError
from quarterdeck.protocol import ERROR_CODES

_LARGEST: Final = 2**53  # what JSON carries everywhere
CONSENT: Final = ("accept", "decline")
_YES: Final = frozenset({"yes", "true", "y", "1", "on", "accept", "ok"})
_NO: Final = frozenset({"no", "false", "n", "0", "off", "decline", "cancel"})


class Question(NamedTuple):
    """One thing to answer; `field` is None where there is nothing but to accept or decline."""

    id: str
    text: str
    field: str | None = None
    schema: Mapping[str, Any] = {}
    is_required: bool = True
    options: tuple[str, ...] | None = None
    default: str | None = None
    label: str = ""
    """The field's own words, without those of the form."""


class PendingQuestion(NamedTuple):
    """What an agent asked and waits for: a form is several questions and one answer."""

    request_id: str
    questions: tuple[Question, ...]


def questions_of(request_id: str, request: Mapping[str, Any]) -> tuple[Question, ...]:
    """Return what has to be answered so that a request is."""
    questions = every_question_of(request_id, request)
    return tuple(each for each in questions if each.is_required) or questions


def every_question_of(request_id: str, request: Mapping[str, Any]) -> tuple[Question, ...]:
    """Return all that can be answered: also fields that may be left out."""
    message = _text(request.get("message")) or "The agent asks for your consent."
    fields = {} if request.get("mode") == "url" else _fields(request)
    if not fields:
        return (Question(request_id, message, options=CONSENT),)
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


def response_to(pending: PendingQuestion, answers: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what the agent is answered with; None as long as answers are missing.

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
) -> Question:
    choices = _choices(schema)
    options = tuple(choices) or (("yes", "no") if schema.get("type") == "boolean" else None)
    default = _default(schema, choices)
    label = _label(name, schema)
    return Question(question_id, text, name, schema, is_required, options, default, label)


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
    if not abs(value) < _LARGEST or is_low or is_high:  # NaN is smaller than nothing
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

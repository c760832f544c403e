"""A permission request as a terminal shows it. Pure: lines of styled text, and keys.

What is shown comes from the call itself; the agent's title for it is marked as such. Keys are named
by the kind of an option, never by the agent's text alone: where several options are of one kind,
each has a key, and the agent's name is added. A request can always be rejected. Nothing of a call
is hidden: a long one is cut with the number of lines that are missing, and it cannot be allowed
before all of it was shown.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from quarterdeck.cli.terminal.event_text import Line
from quarterdeck.protocol.diffs import shown_content
from quarterdeck.protocol.line_diff import tally_of, unified_lines
from quarterdeck.views.text import visible, wrapped

KEYS: Final[Mapping[str, tuple[str, str]]] = {
    "y": ("allow_once", "allow once"),
    "a": ("allow_always", "allow always"),
    "n": ("reject_once", "reject"),
    "r": ("reject_always", "reject always"),
}
_MORE_KEYS: Final = "123456789"
"""For further options of a kind that has its key already."""
_HEAD, _TAIL = 14, 6  # lines of a long call that are shown at first
_INDENT: Final = "  "


class PermissionPrompt(NamedTuple):
    """A permission request, ready to be shown."""

    lines: list[Line]
    """The whole call."""
    keys: dict[str, str]
    """The option id for each key that is offered."""
    labels: dict[str, str]
    """What each key does."""
    allowing: frozenset[str]
    """The keys that allow something."""
    unnamed: int
    """The number of options without a key of their own."""

    @property
    def is_long(self) -> bool:
        return len(self.lines) > _HEAD + _TAIL + 1

    def opening(self, hint: str = "press d to see them") -> list[Line]:
        """Return what is shown first: all lines, or the first and the last ones with a hint."""
        if not self.is_long:
            return self.lines
        hidden = len(self.lines) - _HEAD - _TAIL
        gap = Line(f"... {hidden} lines not shown; {hint} ...", "warn")
        return [*self.lines[:_HEAD], gap, *self.lines[-_TAIL:]]

    def choices(self) -> str:
        """Return the keys and what they do."""
        named = [f"{key} {label}" for key, label in self.labels.items()]
        return ", ".join((*named, "d details"))


def permission_prompt(
    call: Mapping[str, Any],
    options: Sequence[Any],
    room: int,
    *,
    because: object = None,
    read: object = None,
) -> PermissionPrompt:
    """Return what to show for a call and its options; an agent may have sent any JSON.

    `because` is why the rules left it to a person; `read` is what the hub read in the call, in the
    request or in what the agent sent before it (the `call` of a card).
    """
    chosen, unnamed = _keys(options)
    reason = [Line(f"{_INDENT}asked because: {because}", "dim")] if because else []
    lines = [
        Line(part, line.style)
        for line in (*_lines(call, read if isinstance(read, Mapping) else {}), *reason)
        for each in visible(line.text).split("\n")
        for part in wrapped(each, room)
    ]
    labels = {key: option.label for key, option in chosen.items()}
    return PermissionPrompt(
        lines=lines,
        keys={key: option.id for key, option in chosen.items()},
        labels=labels if "n" in labels else {**labels, "n": KEYS["n"][1]},
        allowing=frozenset(key for key, option in chosen.items() if option.is_allowing),
        unnamed=unnamed,
    )


def details(call: Mapping[str, Any], options: Sequence[Any], room: int) -> list[Line]:
    """Return everything that the agent sent, as JSON."""
    text = json.dumps({"toolCall": call, "options": list(options)}, indent=2, ensure_ascii=False)
    return [Line(part) for line in visible(text).split("\n") for part in wrapped(line, room)]


class _Option(NamedTuple):
    id: str
    label: str
    is_allowing: bool


def _keys(options: Sequence[Any]) -> tuple[dict[str, _Option], int]:
    """Return the option of each key; none, if one id is of two options."""
    named = [each for each in map(_known, options) if each is not None]
    if len({option.id for _, option in named}) < len(named):
        return {}, len(options)
    by_key: dict[str, _Option] = {}
    further: list[_Option] = []
    for key, option in named:
        if key in by_key:
            further.append(option)
        else:
            by_key[key] = option
    ordered = {key: by_key[key] for key in KEYS if key in by_key}
    ordered.update(zip(_MORE_KEYS, further, strict=False))
    return ordered, len(options) - len(ordered)


def _known(option: Any) -> tuple[str, _Option] | None:
    """Return an option of a known kind, with the key of that kind."""
    match option:
        case {"optionId": str(option_id), "kind": str(kind)} if kind in _KEY_OF_KIND:
            key = _KEY_OF_KIND[kind]
            label = option.get("label")
            text = KEYS[key][1] if not isinstance(label, str) else visible(label)
            is_allowing = kind.startswith("allow")
            return key, _Option(option_id, text[:1].lower() + text[1:], is_allowing)
        case _:
            return None


_KEY_OF_KIND: Final = {kind: key for key, (kind, _) in KEYS.items()}


def _lines(call: Mapping[str, Any], read: Mapping[str, Any]) -> Iterator[Line]:
    given = call.get("rawInput")
    kind = call.get("kind") or read.get("kind")
    contents = [line for part in _tables(_shown(call)) for line in _content(part)]
    yield Line(f"The agent asks to {_VERBS.get(str(kind), 'use a tool')}", "request")
    yield from _files(call, read if given is None else {})
    own = _command(given)
    found = read.get("commands") if given is None else None
    commands = [own] if own is not None else found if isinstance(found, list) else []
    yield from (Line(f"{_INDENT}command: {command}", "strong") for command in commands)
    yield from contents
    rest = _rest(given, has_command=own is not None, has_content=bool(contents))
    if rest is not None:
        yield Line(f"{_INDENT}input: {rest}")
    if call.get("title"):
        yield Line(f"{_INDENT}the agent says: {call['title']}", "dim")
    if given is None and not contents:
        is_read = bool(commands or read.get("paths"))
        words = "the request has no details; these are of the open calls of its turn"
        yield Line(
            f"{_INDENT}{words if is_read else 'the agent sent no details of this call'}", "warn"
        )


def _files(call: Mapping[str, Any], read: Mapping[str, Any]) -> Iterator[Line]:
    """Yield the files that a call names, or else those that were read in it."""
    locations = list(_tables(call.get("locations")))
    for location in locations:
        line = "" if location.get("line") is None else f", line {location['line']}"
        yield Line(f"{_INDENT}file: {location.get('path')}{line}")
    paths = read.get("paths")
    if not locations and isinstance(paths, list):
        yield from (Line(f"{_INDENT}file: {path}") for path in paths)


_VERBS: Final[Mapping[str, str]] = {
    "read": "read",
    "edit": "change a file",
    "delete": "delete",
    "move": "move",
    "search": "search",
    "execute": "run a command",
    "think": "think",
    "fetch": "fetch from the network",
    "switch_mode": "change its mode",
}


def _command(given: Any) -> str | None:
    if not isinstance(given, Mapping):
        return None
    command, arguments = given.get("command", given.get("cmd")), given.get("args")
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        return shlex.join(command)
    if not isinstance(command, str):
        return None
    if isinstance(arguments, list) and arguments:
        return f"{command} {shlex.join(map(str, arguments))}"
    return command


def _rest(given: Any, *, has_command: bool, has_content: bool) -> str | None:
    """Return the input as JSON, without what the lines above show already."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        shown = {"command", "cmd", "args"} if has_command else set()
        rest = {key: value for key, value in given.items() if key not in shown}
        if not rest and (has_command or has_content):
            return None
        given = rest
    return json.dumps(given, ensure_ascii=False, indent=2)


def _shown(call: Mapping[str, Any]) -> Any:
    content = call.get("content")
    return shown_content(content) if isinstance(content, list) else content


def _content(part: Mapping[str, Any]) -> Iterator[Line]:
    match part:
        case {"type": "diff", "newText": str(new), **rest}:
            yield from _diff(str(rest.get("path")), rest.get("oldText"), new)
        case {"type": "content", "content": {"type": "text", "text": str(text)}}:
            yield from (Line(f"{_INDENT}| {line}", "dim") for line in text.splitlines())
        case {"type": "terminal", "terminalId": str()} if len(part) == 2:
            return  # it has no output before the command runs
        case _:
            yield Line(f"{_INDENT}{json.dumps(part, ensure_ascii=False)}", "dim")


def _diff(path: str, old: Any, new: str) -> Iterator[Line]:
    before = old if isinstance(old, str) else None
    tally = tally_of(before, new)
    yield Line(f"{_INDENT}change: {path} +{tally.added} -{tally.deleted}")
    for line in unified_lines(path, before, new, 2):
        style = {"+": "added", "-": "removed", "@": "hunk"}.get(line[:1], "")
        yield Line(_INDENT + line, "strong" if line.startswith(("---", "+++")) else style)


def _tables(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list | tuple):
        yield from (each for each in value if isinstance(each, Mapping))

"""What a tool is: told to the model by its schema, prepared, perhaps allowed by the user, then run.

Preparing reads the arguments and looks, but changes nothing: what it returns is what the user is
shown, and running does exactly that. A tool that fails raises `ToolFailed` and the model is told.

PART: Where the tools of one turn work: the session's folders, or its sandbox.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from quarterdeck.agent.builtin.files import Files
from quarterdeck.agent.builtin.modes import ToolKind, ToolLocation
from quarterdeck.agent.builtin.settings import Setup
from quarterdeck.errors import ToolFailed
from quarterdeck.machine import DefaultTerminalHandler

if TYPE_CHECKING:
    from quarterdeck.agent.client import ClientProxy


MODEL_CHARACTERS = 30_000  # of one result; the rest would push the task out of the model's window

A = TypeVar("A", bound=Struct)
Content = dict[str, Any]
Progress = Callable[[Sequence[Content]], None]
"""Shows what a running tool has so far; each time all of it."""


@dataclass(frozen=True)
class SessionGrant:
    """What "allow for this session" would allow."""

    key: str
    words: str


@dataclass(frozen=True)
class Outcome:
    """What a tool brought about."""

    text: str
    """For the model."""
    content: Sequence[Content] | None = None
    """For people; by default the text."""
    locations: Sequence[Mapping[str, Any]] | None = None
    raw: Any = None
    is_error: bool = False


@dataclass(frozen=True)
class Action:
    """A call that is understood, and what it would do."""

    title: str
    run: Callable[[Progress], Awaitable[Outcome]]
    locations: Sequence[Mapping[str, Any]] = ()
    preview: Sequence[Content] = ()
    grant: SessionGrant | None = None


@dataclass(frozen=True)
class Tool:
    name: str
    kind: ToolKind
    description: str
    schema: Mapping[str, Any]
    prepare: Callable[[Mapping[str, Any], ToolScope], Awaitable[Action]]
    place: ToolLocation = "local"
    asks: bool = False
    """Whether the user must allow it."""

    @property
    def shown_kind(self) -> ToolKind:
        """What clients are told: what a server claims of its tools must not be taken for ours."""
        return "other" if self.place == "server" else self.kind


def define_tool(
    name: str,
    kind: ToolKind,
    arguments: type[A],
    prepare: Callable[[A, ToolScope], Awaitable[Action]],
    *,
    place: ToolLocation = "local",
    asks: bool = False,
) -> Tool:
    """Make a tool whose schema and description are those of the type of its arguments."""

    async def read_and_prepare(raw: Mapping[str, Any], scope: ToolScope) -> Action:
        try:
            given = msgspec.convert(dict(raw), arguments, strict=False)
        except msgspec.ValidationError as error:
            raise ToolFailed(f"the arguments of {name} do not fit: {error}") from error
        return await prepare(given, scope)

    schema = _inlined(msgspec.json.schema(arguments))
    description = schema.pop("description", "")
    return Tool(name, kind, description, schema, read_and_prepare, place=place, asks=asks)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Put definitions where they are used: some servers do not know references."""
    definitions = schema.pop("$defs", {})

    def resolve(part: Any) -> Any:
        match part:
            case {"$ref": str(reference), **rest}:
                target = dict(definitions[reference.rpartition("/")[2]])
                target.pop("title", None)
                return resolve({**target, **rest})
            case dict():
                return {key: resolve(value) for key, value in part.items()}
            case list():
                return [resolve(value) for value in part]
            case _:
                return part

    resolved: dict[str, Any] = resolve(schema)
    return resolved


def text_content(text: str) -> Content:
    return {"type": "content", "content": {"type": "text", "text": text}}


def diff_content(path: str, old: str | None, new: str) -> Content:
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


def shortened(text: str, limit: int = MODEL_CHARACTERS) -> str:
    """Cut the middle out of a text that is too long for the model: both ends matter most."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


@dataclass(frozen=True)
class ToolScope:
    """What a tool has to work with."""

    session_id: str
    cwd: str
    files: Files
    setup: Setup
    terminals: DefaultTerminalHandler
    client: ClientProxy | None
    show_plan: Callable[[Sequence[Mapping[str, Any]]], None]
    sandbox: Callable[[], ToolScope]
    """The same in the session's scratch folder, which is made when it is first asked for."""
    wrap_command: Callable[[Sequence[str]], Sequence[str]]
    """How a command is started; in the sandbox, behind walls. May raise `ToolFailed`."""

"""`Tool`: described to the model by a schema, prepared, if needed permitted by the user, then run.

Preparing a call validates its arguments and may read, but changes nothing. It returns an `Action`,
which is what the user is shown; running the action does exactly that. A tool that fails raises
`ToolFailed`, and its message goes to the model. `ToolScope` is what the tools of a turn work with:
the session's folders, or its sandbox.
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


MODEL_CHARACTERS = 30_000  # of one result; more would fill the model's context window

A = TypeVar("A", bound=Struct)
Content = dict[str, Any]
Progress = Callable[[Sequence[Content]], None]
"""Shows the content of a running tool; each call replaces it all."""


@dataclass(frozen=True)
class SessionGrant:
    """What "allow for this session" covers, and the option's label."""

    key: str
    words: str


@dataclass(frozen=True)
class Outcome:
    """The result of a tool."""

    text: str
    """For the model."""
    content: Sequence[Content] | None = None
    """For people; the text by default."""
    locations: Sequence[Mapping[str, Any]] | None = None
    raw: Any = None
    is_error: bool = False


@dataclass(frozen=True)
class Action:
    """A prepared call: what it would do, and how to run it."""

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
    location: ToolLocation = "local"
    asks: bool = False
    """Whether it requests permission."""

    @property
    def shown_kind(self) -> ToolKind:
        """The kind that clients see: a kind that an MCP server declares is not verified."""
        return "other" if self.location == "server" else self.kind


def define_tool(
    name: str,
    kind: ToolKind,
    arguments: type[A],
    prepare: Callable[[A, ToolScope], Awaitable[Action]],
    *,
    location: ToolLocation = "local",
    asks: bool = False,
) -> Tool:
    """Create a tool with the schema and the docstring of its arguments' type."""

    async def read_and_prepare(raw: Mapping[str, Any], scope: ToolScope) -> Action:
        try:
            given = msgspec.convert(dict(raw), arguments, strict=False)
        except msgspec.ValidationError as error:
            raise ToolFailed(f"the arguments of {name} do not fit: {error}") from error
        return await prepare(given, scope)

    schema = _inlined(msgspec.json.schema(arguments))
    description = schema.pop("description", "")
    return Tool(name, kind, description, schema, read_and_prepare, location=location, asks=asks)


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Inline definitions where they are used: some servers do not support references."""
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
    """Remove the middle of a text that is too long for the model."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


@dataclass(frozen=True)
class ToolScope:
    """What a tool works with."""

    session_id: str
    cwd: str
    files: Files
    setup: Setup
    terminals: DefaultTerminalHandler
    client: ClientProxy | None
    show_plan: Callable[[Sequence[Mapping[str, Any]]], None]
    sandbox: Callable[[], ToolScope]
    """Returns the same in the session's sandbox folder, which is created on first use."""
    wrap_command: Callable[[Sequence[str]], Sequence[str]]
    """Returns the command to start; in the sandbox, an isolated one. May raise `ToolFailed`."""

"""Which tool of an agent does what the model wants, and with which arguments.

Agents name their tools and arguments as they like; they are chosen by the names and schemas in the
agent's request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Json = dict[str, Any]
Deed = Literal["read", "write", "edit", "run"]

_TOOLS: Final[dict[Deed, tuple[str, ...]]] = {
    "run": (
        *("bash", "run_shell_command", "shell", "developer__shell", "execute", "execute_command"),
        *("exec_command", "shell_command", "terminal", "run_terminal_command", "run_commands"),
    ),
    "write": (
        *("write_file", "writefile", "write", "create", "write_text_file", "write_to_file"),
        *("create_file", "editor", "apply_patch", "file_editor", "text_editor"),
    ),
    "edit": (
        *("edit", "replace", "strreplacefile", "search_replace", "edit_file", "str_replace"),
        *("replace_in_file", "editor", "apply_patch", "file_editor", "text_editor", "patch"),
    ),
    "read": (
        *("read", "read_file", "readfile", "read_text_file", "view", "read_files"),
        *("text_editor", "editor", "file_editor", "exec_command", "shell_command", "shell"),
    ),
}
_SHELLS: Final = frozenset(_TOOLS["run"])
_MODES: Final[dict[Deed, tuple[str, ...]]] = {
    "write": ("create", "write"),
    "read": ("view", "read"),
    "edit": ("str_replace", "edit", "replace"),
    "run": (),
}
"""What a tool that does several things is asked to do."""
_ASKING: Final = {"sandbox_permissions": "require_escalated", "justification": "May it run?"}
"""What makes codex ask instead of running a command in its own sandbox."""

_OLD_TEXTS: Final = ("oldstring", "oldstr", "oldtext", "old", "before")
_NEW_TEXTS: Final = ("newstring", "newstr", "newtext", "new", "after", "replacement")


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the model wants done."""

    deed: Deed
    path: str = ""
    content: str = ""
    old: str = ""
    new: str = ""
    command: str = ""

    @property
    def _patch(self) -> str:
        """The change in the form of codex."""
        if self.deed == "write":
            lines = "".join(f"+{line}\n" for line in self.content.splitlines())
            change = f"*** Add File: {self.path}\n{lines}"
        else:
            change = f"*** Update File: {self.path}\n@@\n-{self.old}\n+{self.new}\n"
        return f"*** Begin Patch\n{change}*** End Patch\n"

    def value(self, tool: str, name: str, kind: str) -> Any:
        """Return the argument of a tool, or None if it is not one that matters."""
        known = {
            **dict.fromkeys(("path", "filepath", "file", "filename", "targetfile"), self.path),
            **dict.fromkeys(_OLD_TEXTS, self.old),
            **dict.fromkeys(_NEW_TEXTS, self.new),
            **dict.fromkeys(("content", "contents", "filetext", "text"), self.content),
            **dict.fromkeys(("command", "cmd", "script"), self._shell_line(tool)),
        }
        if tool == "apply_patch" and name in ("input", "patch", "patchtext"):
            return self._patch
        if self.deed == "run" and name in ("sandboxpermissions", "justification"):
            return {key.replace("_", ""): text for key, text in _ASKING.items()}[name]
        value = known.get(name) or None
        if value is not None and kind == "array":
            return ["bash", "-lc", value] if name in ("command", "cmd") else [value]
        return value

    def _shell_line(self, tool: str) -> str:
        if self.deed == "read" and tool in _SHELLS:
            return f"cat {self.path}"
        return self.command


def call_for(wish: Wish, tools: Mapping[str, Json]) -> tuple[str, Json | str] | None:
    """Return a tool that an agent has and its arguments; None if it has none for this.

    A tool without a schema takes text.
    """
    # Tools of an MCP server have its name before theirs.
    by_name = {name.lower().rpartition("__")[2]: name for name in tools}
    by_name |= {name.lower(): name for name in tools}
    found = next((by_name[each] for each in _TOOLS[wish.deed] if each in by_name), None)
    if found is None:
        return None
    schema = tools[found]
    if not schema:
        return found, wish.value(found.lower(), "input", "string")
    return found, _arguments(wish, found.lower(), schema, schema)


def _arguments(wish: Wish, tool: str, schema: Json, root: Json) -> Json:
    arguments: Json = {}
    for key, given in schema.get("properties", {}).items():
        value = _argument(wish, tool, key.lower().replace("_", ""), _resolved(given, root), root)
        if value is None and key in schema.get("required", ()):
            value = _something(_resolved(given, root), root, key)
        if value is not None:
            arguments[key] = value
    return arguments


def _argument(wish: Wish, tool: str, name: str, schema: Json, root: Json) -> Any:
    if name in ("edit", "edits", "replacements", "files", "paths", "commands"):
        return _nested(wish, tool, schema, root)
    if schema.get("enum"):
        wanted = (*_MODES[wish.deed], wish.value(tool, name, "string"))
        return next((each for each in schema["enum"] if each in wanted), None)
    return wish.value(tool, name, _kind(schema))


def _nested(wish: Wish, tool: str, schema: Json, root: Json) -> Any:
    """Return the argument of a tool that does several changes, or reads several files."""
    if _kind(schema) != "array":
        inner = next((each for each in _ways(schema, root) if _kind(each) == "array"), None)
        if inner is None:
            return _arguments(wish, tool, schema, root) or None
        schema = inner
    item = _resolved(schema.get("items", {}), root)
    objects = [each for each in (item, *_ways(item, root)) if each.get("properties")]
    if objects:
        return [_arguments(wish, tool, objects[0], root)]
    return [wish.command or wish.path]


def _resolved(schema: Json, root: Json) -> Json:
    while "$ref" in schema:
        found: Any = root
        for part in schema["$ref"].lstrip("#/").split("/"):
            found = found.get(part, {})
        schema = found
    return schema


def _ways(schema: Json, root: Json) -> list[Json]:
    """Return the alternatives of a schema."""
    either = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return [_resolved(each, root) for each in either]


def _kind(schema: Json) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "string")
    if kind is None:
        ways = (each.get("type") for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())))
        kind = next((each for each in ways if each not in (None, "null")), "string")
    return str(kind).lower()


def _something(schema: Json, root: Json, name: str) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    match _kind(schema):
        case "boolean":
            return False
        case "integer" | "number":
            # Of a time limit nothing says whether it is in seconds.
            value = 60_000 if "timeout" in name.lower() else 60
            return min(value, schema.get("maximum") or value)
        case "array":
            item = _resolved(schema.get("items", {}), root)
            return [_something(item, root, name)] * int(schema.get("minItems") or 0)
        case "object":
            inner = schema.get("properties", {})
            needed = schema.get("required", ())
            return {key: _something(inner[key], root, key) for key in needed if key in inner}
        case _:
            return "to see what happens"

"""Tool names and inputs of all agents: canonical names, categories, one-line descriptions.

Agents spell the same tool differently (`Bash`, `bash`, `run_shell_command`, `exec_command`), and
the keys of its input too. Code compares canonical names; people see the agent's own spelling.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

ToolCategory: TypeAlias = Literal[
    "file_read",
    "file_write",
    "file_edit",
    "terminal",
    "search",
    "web",
    "git",
    "mcp",
    "agent",
    "other",
]
_SPELLINGS: Final = {
    "Bash": "bash shell shellexec shellcommand execcommand runshellcommand runcommand terminal"
    " execute executecommand developershell runinterminal",
    "Read": "read readfile readtextfile fileread readfiles viewfile view notebookread",
    "Write": "write writefile writetextfile filewrite createfile create",
    "Edit": "edit editfile fileedit editfiles replace replaceinfile strreplace searchreplace"
    " strreplaceeditor multiedit texteditor",
    "Patch": "applypatch patch applydiff",
    "Glob": "glob find findfiles searchfiles",
    "Grep": "grep ripgrep searchfilecontent codesearch searchtext",
    "List": "ls list listfiles listdirectory listdir tree",
    "Task": "task agent subagent spawnagent delegate",
    "TodoWrite": "todowrite updateplan writetodos todo updatetodos",
    "TodoRead": "todoread",
    "WebFetch": "webfetch fetch fetchurl fetchwebpage",
    "WebSearch": "websearch googlewebsearch searchweb",
    "NotebookEdit": "notebookedit",
    "ExitPlanMode": "exitplanmode",
    "AskUserQuestion": "askuserquestion askuser askfollowupquestion question",
    "Delete": "delete deletefile removefile",
    "Move": "move movefile renamefile rename",
    "Think": "think",
}
CANONICAL: Final[Mapping[str, str]] = {
    spelling: name for name, spellings in _SPELLINGS.items() for spelling in spellings.split()
}
OF_KIND: Final[Mapping[str, str]] = {
    "read": "Read",
    "edit": "Edit",
    "delete": "Delete",
    "move": "Move",
    "search": "Grep",
    "execute": "Bash",
    "think": "Think",
    "fetch": "WebFetch",
}
_CATEGORIES: Final[Mapping[str, ToolCategory]] = {
    "Read": "file_read",
    "Glob": "file_read",
    "Grep": "file_read",
    "List": "file_read",
    "Write": "file_write",
    "NotebookEdit": "file_write",
    "Edit": "file_edit",
    "Patch": "file_edit",
    "Delete": "file_edit",
    "Move": "file_edit",
    "Bash": "terminal",
    "WebSearch": "web",
    "WebFetch": "web",
    "Task": "agent",
    "Mcp": "mcp",
}
_BY_WORD: Final[Mapping[str, ToolCategory]] = {
    "git": "git",
    "github": "git",
    "gitlab": "git",
    "mcp": "mcp",
    "search": "search",
}
_OF_KIND_CATEGORY: Final[Mapping[str, ToolCategory]] = {
    "read": "file_read",
    "edit": "file_edit",
    "delete": "file_edit",
    "move": "file_edit",
    "search": "search",
    "execute": "terminal",
    "fetch": "web",
}
PATH_KEYS: Final = (
    "file_path", "filePath", "filepath", "absolute_path", "path", "notebook_path", "target_file",
)  # fmt: skip
COMMAND_KEYS: Final = ("command", "cmd", "script")
_DESCRIBED: Final[Mapping[str, tuple[str, tuple[str, ...], int | None]]] = {
    "Bash": ("Run", COMMAND_KEYS, 100),
    "Read": ("Read", PATH_KEYS, None),
    "Write": ("Write", PATH_KEYS, None),
    "Edit": ("Edit", PATH_KEYS, None),
    "NotebookEdit": ("Edit", PATH_KEYS, None),
    "List": ("List", ("path", "dir_path", "directory"), None),
    "Delete": ("Delete", PATH_KEYS, None),
    "Glob": ("Search", ("pattern", "glob", "query"), None),
    "Grep": ("Grep", ("pattern", "query", "regex"), None),
    "Task": ("Task", ("description", "prompt", "task"), 50),
    "WebSearch": ("Search", ("query", "q"), None),
    "WebFetch": ("Fetch", ("url", "uri", "prompt"), None),
}
"""The label, the keys of its text, and how many characters are shown, as documented."""


_SHELL: Final = re.compile(r"(?:/(?:usr/|usr/local/|opt/homebrew/)?bin/)?(?:ba|z|da|k)?sh")
"""A shell of the system; a relative path may be a file of the project with the same name."""


@lru_cache(maxsize=1024)
def canonical_name(name: str) -> str | None:
    """Return the canonical name of a known tool; None for all others."""
    if name.startswith("mcp__"):
        return "Mcp"
    return CANONICAL.get(re.sub(r"[-_ ]", "", name).lower())


@lru_cache(maxsize=1024)
def categorize_tool(name: str) -> ToolCategory:
    """Return the category of a tool by its name.

    Known tools are found in any spelling. Others are matched by a whole word of their name
    (`git_commit`, `searchCode`; not `digital`).
    """
    canonical = canonical_name(name)
    if canonical is not None and canonical in _CATEGORIES:
        return _CATEGORIES[canonical]
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]
    return next((_BY_WORD[word] for word in words if word in _BY_WORD), "other")


def categorize_call(name: str, kind: str | None, *, is_creation: bool = False) -> ToolCategory:
    """Return the category of a call: by its name, else by its kind."""
    category = categorize_tool(name)
    if category == "other" and kind is not None and canonical_name(name) is None:
        category = _OF_KIND_CATEGORY.get(kind, "other")
    return "file_write" if category == "file_edit" and is_creation else category


def text_of(given: Any, keys: tuple[str, ...]) -> str | None:
    """Return the value of the first key that has a text, a number or the words of a command."""
    if not given or (not isinstance(given, dict) and not isinstance(given, Mapping)):
        return None
    for key in keys:
        value = given.get(key)
        if value is not None and (text := value if isinstance(value, str) else _as_text(value)):
            return text
    return None


def _as_text(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return _joined(value)
    return ""


def command_of(given: Any) -> str | None:
    """Return the command line of a call, in any of the forms that agents send."""
    line = text_of(given, COMMAND_KEYS)
    if line is not None and ("args" in given or "arguments" in given):
        arguments = text_of(given, ("args", "arguments"))
        return line if arguments is None else f"{line} {arguments}"
    return line


def commands_of(given: Any) -> list[str]:
    """Return every text that may be the command line: which key the tool reads is not known."""
    line = command_of(given)
    if line is None:
        return []
    others = [text_of(given, (key,)) for key in COMMAND_KEYS[1:] if key in given]
    return list(dict.fromkeys([line, *filter(None, others)])) if others else [line]


def describe_tool_call(name: str, given: Any = None) -> str:
    """Describe a call in one line; without the input that it needs, by its name alone."""
    described = _DESCRIBED.get(canonical_name(name) or "")
    if described is None:
        return name
    label, keys, limit = described
    text = text_of(given, keys)
    return name if text is None else f"{label}: {text[:limit]}"


def _joined(words: list[str]) -> str:
    """Return words as a command line; for `sh -c LINE` return the line itself."""
    if len(words) == 3 and words[1] in ("-c", "-lc") and _SHELL.fullmatch(words[0]):
        return words[2]
    return shlex.join(words)

"""The result of a tool call: its output, and its effects as events.

The output is text for people, a structure where one can be derived, and a list of changed files.
`CallEffects` emits what agents do not report themselves: changed files, git and web operations, the
end of a sub-agent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from quarterdeck.jsontext import encode_json
from quarterdeck.policy import PATH_KEYS, plain_path, relative_path, text_of
from quarterdeck.protocol.shown_events import has_lines, is_before_output, raw_output_text
from quarterdeck.views.context.call_state import NamedToolCall, objects
from quarterdeck.views.context.changes import (
    Change,
    changed,
    git_operations,
    language_of,
    may_use_git,
)
from quarterdeck.views.context.events import (
    FileChangeBatchEvent,
    FileChangeEvent,
    GitOperationEvent,
    SubAgentCompletedEvent,
    WebOperationEvent,
)
from quarterdeck.views.context.numbering import EventNumbering
from quarterdeck.views.context.types import (
    ChangeType,
    CommandOutput,
    FileChange,
    FileChangeSummary,
    FileDiffOutput,
    SearchMatch,
    SearchResultsOutput,
    ToolStructuredOutput,
    WebContentOutput,
    WebFetch,
    WebOperation,
    WebSearch,
    WebSearchResult,
)

LONGEST: Final = 65_536  # characters of an output; the log has all of it
MOST_MATCHES: Final = 200
_TEXTS: Final = (
    "output", "formatted_output", "aggregated_output", "stdout", "content", "text", "result",
    "error", "message",
)  # fmt: skip
_EXITS: Final = ("exit_code", "exitCode", "exit", "code")
_MATCH: Final = re.compile(r"(.+?):(\d+):(.*)")


class TerminalText:
    """The end of a terminal's output, and its exit code."""

    __slots__ = ("exit_code", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.exit_code: int | None = None

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.size += len(text)
        if self.size > 2 * LONGEST:
            self.parts = [self.text[-LONGEST:]]
            self.size = LONGEST

    @property
    def text(self) -> str:
        return "".join(self.parts)


def block_text(block: Any) -> str:
    """Return a content block as text; other kinds of blocks as their name."""
    if not isinstance(block, dict):
        return ""
    kind = block.get("type")
    if kind == "text":
        return _text(block.get("text"))
    if kind == "resource_link":
        return f"[{_text(block.get('name')) or 'link'}]({_text(block.get('uri'))})"
    if kind == "resource":
        resource = block.get("resource")
        inner = resource if isinstance(resource, dict) else {}
        return _text(inner.get("text")) or f"[resource]({_text(inner.get('uri'))})"
    return f"[{kind}]" if isinstance(kind, str) else ""


def output_text(call: NamedToolCall, terminals: Mapping[str, TerminalText]) -> str:
    """Return the output of a call, for people."""
    parts = [text for each in call.content if (text := _item_text(each, call, terminals))]
    text = "\n".join(parts)
    if not text:
        text = "\n".join(terminals[each].text for each in call.terminal_ids if each in terminals)
    text = text or _raw_text(call.raw_output)
    if is_before_output(call.kind, call.content):
        raw = raw_output_text(call.raw_output)
        text = text if has_lines(text, raw) else f"{text.rstrip()}\n{raw}"
    if len(text) <= LONGEST:
        return text
    if call.kind == "execute":
        return f"[… {len(text) - LONGEST} characters cut]\n{text[-LONGEST:]}"
    return f"{text[:LONGEST]}\n[{len(text) - LONGEST} characters cut …]"


def _item_text(
    item: dict[str, Any], call: NamedToolCall, terminals: Mapping[str, TerminalText]
) -> str:
    kind = item.get("type")
    if kind == "content":
        return block_text(item.get("content"))
    if kind == "terminal":
        terminal = terminals.get(_text(item.get("terminalId")))
        return terminal.text if terminal is not None else ""
    path = item.get("path")
    if kind == "diff" and isinstance(path, str) and plain_path(path) in call.diffs:
        change = _change(plain_path(path), call, "")
        return f"{path} (+{change.added} −{change.removed})"  # noqa: RUF001 - a minus sign
    return ""


def _raw_text(raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    if isinstance(raw, dict):
        for key in _TEXTS:
            value = raw.get(key)
            if isinstance(value, str) and value:
                more = raw.get("stderr") if key == "stdout" else None
                return f"{value}\n{more}" if isinstance(more, str) and more else value
    if isinstance(raw, list):
        texts = [block_text(each) for each in raw]
        if any(texts):
            return "\n".join(text for text in texts if text)
    return "" if raw is None else encode_json(raw).decode(errors="replace")


def structured_output(
    call: NamedToolCall, output: str, changes: list[Change], terminals: Mapping[str, TerminalText]
) -> ToolStructuredOutput | None:
    """Return the output as a structure, if one can be derived."""
    if len(changes) == 1 and (diff := changes[0].diff) is not None:
        return FileDiffOutput(path=changes[0].path, diff=diff, change_type=changes[0].change_type)
    traits = call.traits
    if traits.is_command:
        return _command_output(call, output, terminals)
    if traits.is_search:
        return _search_results(output)
    url = text_of(call.raw_input, ("url",)) if traits.canonical == "WebFetch" else None
    if url is not None:
        raw = call.raw_output if isinstance(call.raw_output, dict) else {}
        summary = output[:500] or None
        return WebContentOutput(url=url, title=text_of(raw, ("title",)), summary=summary)
    return None


def exit_code_of(call: NamedToolCall, terminals: Mapping[str, TerminalText]) -> int | None:
    for each in call.terminal_ids:
        if each in terminals and terminals[each].exit_code is not None:
            return terminals[each].exit_code
    raw = call.raw_output
    if not isinstance(raw, dict):
        return None
    metadata = raw.get("metadata")
    for holder in (raw, metadata) if isinstance(metadata, dict) else (raw,):
        for key in _EXITS:
            value = holder.get(key)
            if value is not None and (code := whole_number(value)) is not None:
                return code
    return None


def whole_number(value: Any) -> int | None:
    """Return an integer in the range of exit and status codes; None for anything else."""
    is_code = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31
    return value if is_code else None


def _command_output(
    call: NamedToolCall, output: str, terminals: Mapping[str, TerminalText]
) -> CommandOutput | None:
    code = exit_code_of(call, terminals)
    if code is None:
        return None
    raw = call.raw_output if isinstance(call.raw_output, dict) else {}
    stdout, stderr = raw.get("stdout"), raw.get("stderr")
    if not isinstance(stdout, str):
        stdout = output
    return CommandOutput(exit_code=code, stdout=stdout[-LONGEST:], stderr=_text(stderr)[-LONGEST:])


def _search_results(output: str) -> SearchResultsOutput | None:
    lines = [line for line in output.split("\n") if line]
    found = [_MATCH.fullmatch(line) for line in lines[:MOST_MATCHES]]
    matches = [
        SearchMatch(file=each[1], line=int(each[2]), content=each[3])
        for each in found
        if each is not None and len(each[2]) < 10
    ]
    if not matches or len(matches) < len(found):
        return None
    return SearchResultsOutput(results=tuple(matches))


def changes_of(call: NamedToolCall, project: str) -> list[Change]:
    """Return the files that a successful call has changed."""
    if call.diffs:
        return [_change(path, call, project) for path in call.diffs]
    if not call.traits.changes_files:
        return []
    named = text_of(call.raw_input, PATH_KEYS)
    paths = [each["path"] for each in call.locations if isinstance(each.get("path"), str)]
    path = named or (paths[0] if paths else None)
    if path is None:
        return []
    canonical = call.traits.canonical
    if call.kind == "delete" or canonical == "Delete":
        return [Change(path, "deleted")]
    if canonical == "Edit":
        old, new = (text_of(call.raw_input, keys) for keys in _EDITS)
        if old is not None and new is not None:
            return [changed(path, old, new, name=relative_path(path, project))]
    return [Change(path, "modified")]


_EDITS: Final = (("old_string", "oldString"), ("new_string", "newString"))


def _change(path: str, call: NamedToolCall, project: str) -> Change:
    old, new, is_deleted = call.diffs[path]
    is_deletion = is_deleted or call.kind == "delete"
    return changed(path, old, new, name=relative_path(path, project), is_deletion=is_deletion)


def content_text(call: NamedToolCall) -> str:
    """Return the text that a call shows before its end."""
    texts = [
        block_text(each.get("content")) for each in call.content if each.get("type") == "content"
    ]
    return "\n".join(text for text in texts if text)


def web_results(raw: Any) -> list[dict[str, Any]]:
    """Return the results of a search, if its output has them."""
    listed = raw.get("results") if isinstance(raw, dict) else raw
    return [each for each in objects(listed) if isinstance(each.get("url"), str)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


class CallEffects:
    """Derives effects that agents do not report; in a replay only those in `derive_on_replay`."""

    def __init__(self, numbering: EventNumbering, derive_on_replay: Collection[str]) -> None:
        self._numbering = numbering
        self._derive_on_replay = frozenset(derive_on_replay)
        self._files: dict[str, tuple[ChangeType, int, int]] = {}

    def forget(self) -> None:
        self._files.clear()

    def files(self) -> tuple[FileChangeSummary, ...]:
        return tuple(
            FileChangeSummary(path=path, change_type=kind, lines_added=added, lines_removed=removed)
            for path, (kind, added, removed) in self._files.items()
        )

    def emit(
        self,
        call: NamedToolCall,
        output: str,
        changes: list[Change],
        terminals: Mapping[str, TerminalText],
    ) -> None:
        if changes:
            self._count(changes)
            if self._derives("file"):
                self._emit_files(call, changes)
        command = call.command if call.traits.is_command else None
        if command and may_use_git(command) and self._derives("git"):
            if exit_code_of(call, terminals) in (0, None):
                for operation in git_operations(command, output):
                    self._numbering.emit(
                        GitOperationEvent, operation=operation, tool_call_id=call.id
                    )
        elif call.traits.is_web and not command and self._derives("web"):
            web = _web_operation(call)
            if web is not None:
                self._numbering.emit(WebOperationEvent, operation=web, tool_call_id=call.id)

    def sub_agent_ended(self, call: NamedToolCall, result: str) -> None:
        self._numbering.emit(
            SubAgentCompletedEvent,
            sub_agent_id=call.id,
            parent_tool_call_id=call.id,
            result=result,
            token_usage=call.reported_usage,
        )

    def _derives(self, what: str) -> bool:
        return not self._numbering.is_replay or what in self._derive_on_replay

    def _count(self, changes: list[Change]) -> None:
        for change in changes:
            known = self._files.get(change.path)
            kind, added, removed = known or (change.change_type, 0, 0)
            if known is not None and change.change_type == "deleted":
                kind = "deleted"
            counts = (added + change.added, removed + change.removed)
            self._files[change.path] = (kind, *counts)

    def _emit_files(self, call: NamedToolCall, changes: list[Change]) -> None:
        if len(changes) == 1:
            (change,) = changes
            is_known = change.diff is not None
            self._numbering.emit(
                FileChangeEvent,
                path=change.path,
                change_type=change.change_type,
                diff=change.diff,
                language=language_of(change.path),
                lines_added=change.added if is_known else None,
                lines_removed=change.removed if is_known else None,
                tool_call_id=call.id,
            )
            return
        batch = tuple(
            FileChange(
                path=change.path,
                change_type=change.change_type,
                diff=change.diff,
                lines_added=change.added,
                lines_removed=change.removed,
            )
            for change in changes
        )
        self._numbering.emit(
            FileChangeBatchEvent,
            changes=batch,
            description=call.title or None,
            tool_call_id=call.id,
        )


def _web_operation(call: NamedToolCall) -> WebOperation | None:
    if call.traits.canonical == "WebSearch":
        query = text_of(call.raw_input, ("query", "q"))
        if query is None:
            return None
        results = tuple(_result(each) for each in web_results(call.raw_output))
        return WebSearch(query=query, results=results or None)
    url = text_of(call.raw_input, ("url", "uri"))
    if url is None:
        return None
    raw = call.raw_output if isinstance(call.raw_output, dict) else {}
    status = next((raw[key] for key in ("statusCode", "status", "code") if key in raw), None)
    return WebFetch(
        url=url,
        title=text_of(raw, ("title",)),
        status_code=whole_number(status),
    )


def _result(found: dict[str, Any]) -> WebSearchResult:
    title, snippet = found.get("title"), found.get("snippet") or found.get("description")
    return WebSearchResult(
        title=title if isinstance(title, str) else "",
        url=found["url"],
        snippet=snippet if isinstance(snippet, str) else "",
    )

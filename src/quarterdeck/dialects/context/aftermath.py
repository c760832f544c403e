"""What an ended call left behind: changed files, git and web operations, a sub-agent's end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from quarterdeck.dialects.context.calls import ToolCall
from quarterdeck.dialects.context.diffs import Change, language_of
from quarterdeck.dialects.context.events import (
    FileChangeBatchEvent,
    FileChangeEvent,
    GitOperationEvent,
    SubAgentCompletedEvent,
    WebOperationEvent,
)
from quarterdeck.dialects.context.gitops import git_operations, may_use_git
from quarterdeck.dialects.context.outputs import Terminal, exit_code_of, web_results, whole_number
from quarterdeck.dialects.context.shapes import (
    ChangeType,
    FileChange,
    FileChangeSummary,
    WebFetch,
    WebOperation,
    WebSearch,
    WebSearchResult,
)
from quarterdeck.dialects.context.stage import Stage
from quarterdeck.dialects.context.tools import text_of


class Aftermath:
    """Derives what agents do not say; during a replay only what `derive_on_replay` names."""

    def __init__(self, stage: Stage, derive_on_replay: Collection[str]) -> None:
        self._stage = stage
        self._derive_on_replay = frozenset(derive_on_replay)
        self._files: dict[str, tuple[ChangeType, int, int]] = {}

    def forget(self) -> None:
        self._files.clear()

    def files(self) -> tuple[FileChangeSummary, ...]:
        return tuple(
            FileChangeSummary(path=path, change_type=kind, lines_added=added, lines_removed=removed)
            for path, (kind, added, removed) in self._files.items()
        )

    def tell(
        self,
        call: ToolCall,
        output: str,
        changes: list[Change],
        terminals: Mapping[str, Terminal],
    ) -> None:
        if changes:
            self._count(changes)
            if self._tells("file"):
                self._tell_files(call, changes)
        command = call.command if call.traits.is_command else None
        if command and may_use_git(command) and self._tells("git"):
            if exit_code_of(call, terminals) in (0, None):
                for operation in git_operations(command, output):
                    self._stage.emit(GitOperationEvent, operation=operation, tool_call_id=call.id)
        elif call.traits.is_web and not command and self._tells("web"):
            web = _web_operation(call)
            if web is not None:
                self._stage.emit(WebOperationEvent, operation=web, tool_call_id=call.id)

    def sub_agent_ended(self, call: ToolCall, result: str) -> None:
        self._stage.emit(
            SubAgentCompletedEvent,
            sub_agent_id=call.id,
            parent_tool_call_id=call.id,
            result=result,
        )

    def _tells(self, what: str) -> bool:
        return not self._stage.is_replay or what in self._derive_on_replay

    def _count(self, changes: list[Change]) -> None:
        for change in changes:
            known = self._files.get(change.path)
            kind, added, removed = known or (change.change_type, 0, 0)
            if known is not None and change.change_type == "deleted":
                kind = "deleted"
            counts = (added + change.added, removed + change.removed)
            self._files[change.path] = (kind, *counts)

    def _tell_files(self, call: ToolCall, changes: list[Change]) -> None:
        if len(changes) == 1:
            (change,) = changes
            is_known = change.diff is not None
            self._stage.emit(
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
        self._stage.emit(
            FileChangeBatchEvent,
            changes=batch,
            description=call.title or None,
            tool_call_id=call.id,
        )


def _web_operation(call: ToolCall) -> WebOperation | None:
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

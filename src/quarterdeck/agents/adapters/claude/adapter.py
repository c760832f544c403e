"""Claude Code as an adapter: its transcripts are read, its permission requests come by a hook."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from quarterdeck.agents.adapters.claude import hooks
from quarterdeck.agents.adapters.claude.files import ClaudeFiles, folder_of
from quarterdeck.agents.adapters.claude.reader import ClaudeReader
from quarterdeck.agents.adapters.file_adapter import Abilities, FileAdapter
from quarterdeck.errors import JsonInvalid
from quarterdeck.jsontext import decode_json
from quarterdeck.views.context import AgentDataPaths, Cursor, ForeignSession, HookSettings

NAME: Final = "claude"


def _pretty(settings: dict[str, Any]) -> str:
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


class ClaudeAdapter(FileAdapter):
    """The sessions of Claude Code on this machine."""

    name = NAME
    abilities = Abilities(
        title="Claude Code",
        method="file-watch",
        has_sub_agents=True,
        has_todos=True,
        has_batched_changes=True,
    )

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(environ, folder_of(environ))
        self._files = ClaudeFiles(self.folder)

    @override
    def get_data_paths(self) -> AgentDataPaths:
        folder = self.folder
        return AgentDataPaths(
            sessions=str(folder / "projects"), config=str(folder / "settings.json")
        )

    # ---- sessions --------------------------------------------------------------------------

    @override
    def find_sessions(self) -> Sequence[ForeignSession]:
        return self._files.find()

    @override
    def find_running(self) -> Sequence[ForeignSession]:
        return self._files.running()

    @override
    def open_reader(self, session: ForeignSession, after: Cursor | None, at: int) -> ClaudeReader:
        return ClaudeReader(session, after, at)

    # ---- the hook --------------------------------------------------------------------------

    def hook_command(self, socket: str) -> str:
        script = Path(__file__).with_name(hooks.SCRIPT)
        return hooks.hook_command(sys.executable, str(script), socket)

    def hook_settings(self, command: str) -> HookSettings:
        path = self.folder / "settings.json"
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        try:
            settings = decode_json(before) if before.strip() else {}
        except JsonInvalid as error:
            raise ValueError(f"{path} is not JSON: {error}") from error
        if not isinstance(settings, dict):
            raise ValueError(f"{path} is not a JSON object")  # noqa: TRY004 - of a file
        removed = hooks.without_hook(settings, command)
        return HookSettings(
            path=str(path),
            before=before,
            installed=_pretty(hooks.with_hook(settings, command)),
            removed=_pretty(removed) if removed else "",
            has_hook=removed != settings,
            is_current=hooks.with_hook(settings, command) == settings,
        )

    def hook_session(self, hook: Mapping[str, Any]) -> ForeignSession | None:
        session_id, cwd, path = (hook.get(key) for key in ("session_id", "cwd", "transcript_path"))
        is_request = hook.get("hook_event_name") == hooks.EVENT
        if not is_request or hook.get("tool_name") in hooks.UNANSWERABLE:
            return None
        texts = [each for each in (session_id, cwd, path) if isinstance(each, str) and each]
        if len(texts) < 3 or not self._is_transcript(texts[2], texts[0]):
            return None
        return ForeignSession(id=texts[0], cwd=texts[1], path=texts[2])

    def _is_transcript(self, path: str, session_id: str) -> bool:
        """Return whether a path that a hook sent is that of a transcript, and no other file."""
        given = Path(path)
        is_inside = given.parent.parent == self.folder / "projects"
        return is_inside and given.name == f"{session_id}.jsonl"

    def requested_call(self, hook: Mapping[str, Any]) -> tuple[str, Any]:
        return str(hook.get("tool_name", "")), hook.get("tool_input")

    def permission_params(self, hook: Mapping[str, Any], call_id: str) -> dict[str, Any]:
        return hooks.request_params(hook, call_id)

    def hook_output(
        self, hook: Mapping[str, Any], outcome: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        return hooks.hook_output(hook, outcome)

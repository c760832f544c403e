"""A value that the hub adds and a view forgets is a type error of the page.

Each test copies the page's sources, adds a member to a closed union and counts the places that
`tsc` names: the views that have to decide what the new member means for them.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tools import web

pytestmark = pytest.mark.slow

EVENTS = Path("src/protocol/events.ts")
TYPES = Path("src/data/types.ts")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Return a copy of the page's sources beside the installed packages."""
    copy = tmp_path / "web"
    shutil.copytree(web.WEB / "src", copy / "src")
    shutil.copy(web.WEB / "tsconfig.json", copy)
    (copy / "node_modules").symlink_to(web.MODULES)
    return copy


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def _files_with_errors(sources: Path) -> set[str]:
    output = web.tool_output("tsc", "--noEmit", "--project", str(sources))
    return set(re.findall(r"(src/[\w/]+\.tsx?)\(\d+,\d+\): error TS", output))


def test_the_copy_itself_has_no_errors(sources: Path) -> None:
    assert _files_with_errors(sources) == set()


def test_a_new_session_event_must_reach_the_reducer_and_the_transcript(sources: Path) -> None:
    _replace(
        sources / EVENTS,
        "export type SessionEvent =\n",
        "export interface TeapotEvent extends Envelope {\n"
        "  type: 'teapot'\n  sessionId: string\n  payload: JsonObject\n}\n\n"
        "export type SessionEvent =\n  | TeapotEvent\n",
    )
    assert _files_with_errors(sources) == {"src/protocol/reduce.ts", "src/data/live_transcript.ts"}


def test_a_new_host_event_must_reach_the_data_of_the_host(sources: Path) -> None:
    _replace(
        sources / EVENTS,
        "export type HostEvent =\n",
        "export interface TeapotEvent extends Envelope {\n"
        "  type: 'teapot'\n  agentId?: string\n  payload: JsonObject\n}\n\n"
        "export type HostEvent =\n  | TeapotEvent\n",
    )
    assert _files_with_errors(sources) == {"src/data/host_data.ts"}


def test_a_new_session_status_must_reach_lists_header_transcript_and_panel(sources: Path) -> None:
    _replace(
        sources / EVENTS, "export type SessionStatus = ", "export type SessionStatus = 'paused' | "
    )
    assert _files_with_errors(sources) == {
        "src/data/host_data.ts",
        "src/screens/session.tsx",
        "src/ui/session_panel.tsx",
        "src/ui/transcript_entries.tsx",
    }


def test_a_new_kind_of_request_must_reach_the_cards_and_the_offline_inbox(sources: Path) -> None:
    _replace(
        sources / TYPES,
        "export type AgentRequest = PermissionRequest | Elicitation\n",
        "export type AgentRequest =\n  | PermissionRequest\n  | Elicitation\n"
        "  | (Omit<Elicitation, 'kind'> & { kind: 'teapot' })\n",
    )
    assert _files_with_errors(sources) == {
        "src/data/offline_inbox.ts",
        "src/ui/request_cards.tsx",
    }


def test_a_new_kind_of_entry_must_reach_transcript_lines_and_screen(sources: Path) -> None:
    _replace(
        sources / TYPES,
        "export type Entry ="
        " MessageEntry | ToolEntry | TurnEntry | StatusEntry | MismatchEntry | NoteEntry\n",
        "export type Entry =\n  | MessageEntry\n  | ToolEntry\n  | TurnEntry\n  | StatusEntry\n"
        "  | MismatchEntry\n  | NoteEntry\n"
        "  | { type: 'teapot'; seq: number; at: number }\n",
    )
    assert _files_with_errors(sources) == {
        "src/data/live_transcript.ts",
        "src/screens/session.tsx",
        "src/ui/transcript_lines.ts",
    }

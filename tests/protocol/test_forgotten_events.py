"""A value that the protocol adds and a view forgets is a type error of the package.

One run of mypy over a copy of the package that has one more session event, host event, kind of
request, and status of a session, an agent and a prompt. The errors that mention the new name are in
the modules that must decide what it means for them. The page has the same test for its own views
(`tests/page`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
ADDED_EVENT = """\
class {name}({family}, frozen=True, kw_only=True, tag="{tag}"):
    type: ClassVar[Literal["{tag}"]] = "{tag}"
    payload: dict[str, Any]


"""


class TypeErrorLine(NamedTuple):
    module: str
    message: str


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new), encoding="utf-8")


def _copied(folder: Path) -> Path:
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("built"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder / "src" / "quarterdeck" / "protocol"


def _type_errors(folder: Path) -> list[TypeErrorLine]:
    command = (sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", "src/quarterdeck")
    output = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    lines = re.findall(r"^src/quarterdeck/([\w/]+)\.py:\d+: error: (.*)$", output, re.MULTILINE)
    return [TypeErrorLine(module, message) for module, message in lines]


@pytest.fixture(scope="module")
def type_errors(tmp_path_factory: pytest.TempPathFactory) -> list[TypeErrorLine]:
    """Return the errors of mypy in a package with one more of everything."""
    folder = tmp_path_factory.mktemp("package")
    protocol = _copied(folder)
    session_event = ADDED_EVENT.format(
        name="NoteAddedEvent", family="SessionEvent", tag="note-added"
    )
    host_event = ADDED_EVENT.format(
        name="NotesUpdatedEvent", family="HostEvent", tag="notes-updated"
    )
    _replace(
        protocol / "events.py",
        "AcpSessionEvent: TypeAlias = (\n",
        f"{session_event}{host_event}AcpSessionEvent: TypeAlias = (\n    NoteAddedEvent |\n",
    )
    _replace(
        protocol / "events.py",
        "AcpHostEvent: TypeAlias = ",
        "AcpHostEvent: TypeAlias = NotesUpdatedEvent | ",
    )
    _replace(
        protocol / "payloads.py", '    "creating", "active",', '    "paused", "creating", "active",'
    )
    _replace(protocol / "payloads.py", 'Literal["spawning",', 'Literal["updating", "spawning",')
    _replace(
        protocol.parent / "runner" / "prompts" / "state.py",
        'PromptState: TypeAlias = Literal["queued",',
        'PromptState: TypeAlias = Literal["held", "queued",',
    )
    _replace(
        protocol / "envelopes.py",
        'RequestKind: TypeAlias = Literal["permission",',
        'RequestKind: TypeAlias = Literal["review", "permission",',
    )
    return _type_errors(folder)


def _modules(errors: list[TypeErrorLine], name: str) -> set[str]:
    return {error.module for error in errors if name in error.message}


def test_every_error_is_of_something_that_was_added(type_errors: list[TypeErrorLine]) -> None:
    added = ("NoteAddedEvent", "NotesUpdatedEvent", "'paused'", "'updating'", "'held'", "'review'")
    others = [error for error in type_errors if not any(name in error.message for name in added)]
    assert others == []


def test_a_new_session_event_must_reach_every_view_of_a_log(
    type_errors: list[TypeErrorLine],
) -> None:
    assert _modules(type_errors, "NoteAddedEvent") == {
        "cli/terminal/event_text",
        "cli/terminal/session_printer",
        "host/sessions/recovery",
        "hub/editors/subscription",
        "protocol/reduce",
        "views/acp",
        "views/acp_v2",
        "views/context/projector",
        "views/packets/projection",
        "views/transcript",
    }


def test_a_new_host_event_must_reach_client_and_runner(type_errors: list[TypeErrorLine]) -> None:
    assert _modules(type_errors, "NotesUpdatedEvent") == {
        "client/client",
        "runner/permissions/decision_recorder",
        "runner/news",
    }


def test_a_new_session_status_must_reach_every_view_that_shows_one(
    type_errors: list[TypeErrorLine],
) -> None:
    assert _modules(type_errors, "'paused'") == {
        "cli/sessions",
        "cli/terminal/session_printer",
        "host/sessions/opening",
        "hub/context/frames",
        "hub/editors/access",
        "hub/push/service",
        "protocol/payloads",
        "runner/sessions/idle",
        "runner/sessions/manager",
        "views/context/lifecycle",
        "views/packets/projection",
        "views/transcript",
    }


def test_a_new_kind_of_request_must_reach_host_client_and_push(
    type_errors: list[TypeErrorLine],
) -> None:
    assert _modules(type_errors, "'review'") == {
        "client/client",
        "host/endpoint",
        "hub/push/service",
        "runner/link/state",
    }


def test_a_new_agent_status_must_reach_the_code_that_waits_for_agents(
    type_errors: list[TypeErrorLine],
) -> None:
    assert _modules(type_errors, "'updating'") == {"runner/sessions/manager"}


def test_a_new_state_of_a_prompt_must_reach_queue_and_editors(
    type_errors: list[TypeErrorLine],
) -> None:
    assert _modules(type_errors, "'held'") == {
        "hub/editors/subscription",
        "hub/editors/subscription_v2",
        "runner/prompts/state",
    }

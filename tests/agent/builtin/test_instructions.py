"""The instructions of a model."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from quarterdeck.agent.builtin.instructions import system_prompt
from quarterdeck.machine import DefaultFsHandler

pytestmark = pytest.mark.anyio


async def instructions_of(folder: Path, mode: str = "full", *roots: str) -> str:
    return await system_prompt(
        cwd=str(folder),
        roots=(str(folder), *roots),
        mode=mode,
        now=datetime(2026, 2, 3, tzinfo=UTC),
        files=DefaultFsHandler(),
    )


async def test_folder_and_date_are_in_the_instructions(tmp_path: Path) -> None:
    text = await instructions_of(tmp_path, "full", "/other/root")
    assert f"Working directory: {tmp_path}\n" in text
    assert "Date: Tuesday, 2026-02-03" in text
    assert "Other folders you may work in: /other/root" in text
    assert "Rules of this project" not in text


async def test_the_rules_of_the_project_are_included_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    assert (await instructions_of(tmp_path)).endswith("from its AGENTS.md:\n\nUse tabs.")
    (tmp_path / "AGENTS.md").write_text("x" * 40_000)
    text = await instructions_of(tmp_path)
    assert text.endswith("[the rest of AGENTS.md was cut]")
    assert len(text) < 36_000


async def test_rules_behind_a_link_that_leads_out_are_not_told(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "secret").write_text("secret")
    (project / "AGENTS.md").symlink_to(tmp_path / "secret")
    assert "secret" not in await instructions_of(project)


@pytest.mark.parametrize(
    ("mode", "words"),
    [("read-only", "not change or run"), ("safe", "not run commands"), ("sandbox", "sandbox_*")],
)
async def test_a_restricted_mode_is_described(tmp_path: Path, mode: str, words: str) -> None:
    assert words in await instructions_of(tmp_path, mode)
    assert words not in await instructions_of(tmp_path, "full")

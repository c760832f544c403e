"""The chapter on the built-in agent names all there is."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from quarterdeck.agent.builtin import demo_model
from quarterdeck.agent.builtin.agent import COMMANDS
from quarterdeck.agent.builtin.modes import MODES
from quarterdeck.agent.builtin.settings import PROVIDERS, BuiltinSettings
from quarterdeck.agent.builtin.tools import TOOLS

CHAPTER = Path(__file__).resolve().parents[3] / "docs" / "embed" / "builtin-agent.md"
TEXT = CHAPTER.read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the tables below a heading, without the header."""
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_setting_is_explained_with_its_default() -> None:
    documented = {cells[0].strip("`"): cells[1].strip("`") for cells in rows("Settings")}
    for field in msgspec.structs.fields(BuiltinSettings):
        assert field.name in documented
        default = field.default
        if field.name in ("models", "providers") or default is None:
            continue
        assert documented[field.name] == msgspec.json.encode(default).decode().removesuffix(".0")


def test_every_tool_is_named_with_its_kind_and_whether_it_asks() -> None:
    documented = {
        cells[0].strip("`"): cells[1:3]
        for cells in rows("Tools and permissions")
        if len(cells) == 4
    }
    for tool in TOOLS:
        if tool.location != "sandbox":
            assert documented[tool.name] == [tool.kind, "yes" if tool.asks else ""]
        assert f"`{tool.name}`" in TEXT


def test_every_mode_command_and_provider_is_named() -> None:
    assert {f"`{mode['id']}`" for mode in MODES} <= {cells[0] for cells in rows("Modes")}
    commands = {re.split(r"[ `]", cells[0].strip("`"))[0] for cells in rows("Sessions")}
    assert {f"/{command['name']}" for command in COMMANDS} <= commands
    providers = {cells[0].strip("`"): cells[2] for cells in rows("Models")}
    for name, provider in PROVIDERS.items():
        assert re.findall(r"`(\w+)`", providers[name]) == list(provider.key_names)


def test_the_language_of_the_demo_model_is_documented_completely() -> None:
    documented = " ".join(cells[0] for cells in rows("The demo model"))
    for verb in demo_model.VERBS:
        assert f"`{verb}" in documented

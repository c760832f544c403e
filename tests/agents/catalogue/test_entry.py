"""The files of the catalogue: those of the package, and the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarterdeck.agents import AgentCatalogue, KnownAgents, built_in_entries
from quarterdeck.agents.catalogue import CatalogueEntry, parse_entry
from quarterdeck.agents.environment import keys_of
from quarterdeck.errors import SettingsInvalid
from tools import gen_agents_table

ENTRIES = list(built_in_entries().values())
MINE = 'name = "mine"\ncommand = "mine-acp"\n'


def test_the_catalogue_has_the_agents_that_were_tried() -> None:
    assert len(ENTRIES) >= 20
    assert len({entry.icon for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_agent_says_where_it_comes_from_and_how_to_sign_in(entry: CatalogueEntry) -> None:
    package = entry.npm or entry.pypi
    assert package is not None
    assert package.version
    assert entry.title
    assert entry.summary
    assert 1 <= len(entry.icon) <= 2
    assert entry.tested != "no"
    assert entry.sign_in.variables or entry.sign_in.command
    assert keys_of(entry)
    assert all(quirk.what and quirk.why for quirk in entry.quirks)
    known = {each.name: each for each in KnownAgents({}, {}).all()}[entry.name]
    assert f"quarterdeck login {entry.name}" in known.sign_in


def test_a_file_of_the_user_adds_an_agent_and_replaces_one_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE + '[environment]\nkeys = ["MINE_*"]\n')
    (tmp_path / "claude.toml").write_text('name = "claude"\ncommand = "my-claude"\n')
    known = KnownAgents({}, {"MINE_KEY": "1", "PATH": ""}, (), AgentCatalogue(tmp_path))
    settings, claude = known.settings("mine"), known.settings("claude")
    assert settings is not None
    assert claude is not None
    assert (settings.command, claude.command) == ("mine-acp", "my-claude")
    definition = known.definition("mine")
    assert definition is not None
    assert "MINE_KEY" in known.environment.of(definition)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name = ", "is not TOML"),
        (MINE + "colour = 1\n", "unknown key colour"),
        ('name = "mine"\n', "needs the key command"),
        ('name = "../mine"\ncommand = "a"\n', "name must be lower-case letters"),
        ('name = "other"\ncommand = "a"\n', "call the file other.toml"),
        (MINE + '[npm]\npackage = "-g evil"\n', "npm.package must be"),
        (MINE + '[npm]\npackage = "a"\nversion = "--global"\n', "npm.version must be"),
        (MINE + '[npm]\npackage = "a"\nalso = ["--global"]\n', "npm.also"),
        (MINE + '[pypi]\npackage = "--index-url=x"\n', "pypi.package must be"),
        (MINE + '[npm]\npackage = "a"\n[pypi]\npackage = "b"\n', "keep one"),
        (MINE + '[binary.linux-x86_64]\narchive = "a"\ncmd = "b"\nsha256 = "xyz"\n', "64 hex"),
        (MINE + '[binary.amiga]\narchive = "a"\ncmd = "b"\n', "amiga"),
    ],
)
def test_a_wrong_file_is_left_out_with_the_reason(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match=reason):
        parse_entry(text, "mine.toml", name="mine")
    (tmp_path / "mine.toml").write_text(text)
    (tmp_path / "good.toml").write_text(MINE.replace('"mine"', '"good"'))
    catalogue = AgentCatalogue(tmp_path)
    assert "good" in catalogue
    assert "mine" not in catalogue
    assert len(catalogue.problems) == 1


def test_a_file_that_others_can_change_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "mine.toml").chmod(0o666)
    catalogue = AgentCatalogue(tmp_path)
    assert "mine" not in catalogue
    assert "chmod go-w" in catalogue.problems[0]


def test_the_table_in_the_documents_is_up_to_date() -> None:
    text = gen_agents_table.CHAPTER.read_text(encoding="utf-8")
    assert text == gen_agents_table.generated(text), "run python tools/gen_agents_table.py"


def test_a_mistyped_name_is_recognised() -> None:
    assert AgentCatalogue().nearest("cluade") == "claude"
    assert AgentCatalogue().nearest("zzzzzz") is None

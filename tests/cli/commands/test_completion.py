"""Completion offers exactly what is understood, in the shells that are there."""

import os
import pkgutil
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from quarterdeck.cli import commands
from quarterdeck.cli.commands import acp
from quarterdeck.cli.commands.completion import SHELLS, script, session_ids, words_of
from quarterdeck.cli.main import COMMANDS, main
from quarterdeck.cli.man_page import man_page
from quarterdeck.cli.shared_files import PATHS, linked_files, write_files


def bash(line: str) -> list[str]:
    """Complete the last word of a line in a real bash."""
    words = line.split(" ")
    code = script("bash") + (
        "quarterdeck() { echo $2-1 $2-2; }\n"  # in place of the command itself
        f"COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1};"
        "_quarterdeck; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_commands_are_completed() -> None:
    assert bash("quarterdeck s") == ["status", "service", "sessions", "show"]
    assert set(bash("quarterdeck ")) == {*COMMANDS, "--help", "--version"}


def test_options_and_their_values_are_completed() -> None:
    assert bash("quarterdeck show 3f --a") == ["--as", "--at"]
    assert bash("quarterdeck show 3f --as p") == ["packets"]
    assert bash("quarterdeck devices r") == ["revoke", "rename"]
    assert bash("quarterdeck completion z") == ["zsh"]
    assert bash("quarterdeck completion s") == bash("quarterdeck completion a") == []


def test_agents_and_sessions_are_completed_where_they_are_arguments() -> None:
    assert bash("quarterdeck run ag") == ["agents-1", "agents-2"]
    assert bash("quarterdeck run demo ag") == []
    assert bash("quarterdeck run --session sess") == ["sessions-1", "sessions-2"]
    for verb in ("show", "tail", "export"):
        assert bash(f"quarterdeck {verb} sess") == ["sessions-1", "sessions-2"]


def test_only_names_that_need_no_quoting_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUARTERDECK_HOME", str(tmp_path))
    monkeypatch.setenv("QUARTERDECK_HUB_CONFIG", str(tmp_path / "hub.toml"))
    (tmp_path / "hub.toml").write_text("[agents.mine]\ncommand = '/bin/sh'\n[agents.gone]\n")
    assert session_ids(tmp_path) == []
    ids = ("old", "$(rm -rf /)", "a b", "-x", "`id`", "", "s/../x", "0191:new@x")
    with closing(sqlite3.connect(tmp_path / "log.db")) as log:
        log.execute("CREATE TABLE sessions (id INTEGER PRIMARY KEY, session_id TEXT)")
        log.executemany("INSERT INTO sessions (session_id) VALUES (?)", [(each,) for each in ids])
        log.commit()
    assert main(["completion", "sessions"]) == 0
    assert capsys.readouterr().out.split() == ["0191:new@x", "old"]
    assert main(["completion", "agents"]) == 0
    assert "demo" in capsys.readouterr().out.split()  # the file is wrong, the rest is offered
    (tmp_path / "hub.toml").write_text("[agents.mine]\ncommand = '/bin/sh'\n")
    assert main(["completion", "agents"]) == 0
    assert "mine" in capsys.readouterr().out.split()


def test_files_are_completed_where_a_file_is_wanted() -> None:
    assert bash("quarterdeck up --tls-cert /etc/host") == [
        line for line in bash("quarterdeck up --home /etc/host") if line
    ]
    assert "/etc/hosts" in bash("quarterdeck up --tls-cert /etc/host")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_printed_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    printed = capsys.readouterr().out
    for verb in COMMANDS:
        assert verb in printed
    program = shutil.which(shell)
    if program is not None:  # its own parser is the judge where there is one
        subprocess.run([program, "-n", "/dev/stdin"], input=printed, text=True, check=True)


def test_an_unknown_shell_is_rejected_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err


def test_completion_of_acp_has_its_options() -> None:
    parser = acp.parser().subparsers["serve"]
    words = parser.format_help().partition("examples:")[0].replace(",", " ").split()
    understood = {word.rstrip(")]") for word in words if word.startswith("--")}
    assert set(words_of("acp").options) == understood


def test_every_command_has_completions() -> None:
    for verb in COMMANDS:
        assert "--help" in words_of(verb).options


def test_completion_and_version_import_nothing_heavy() -> None:
    for arguments in (["completion", "bash"], ["--version"]):
        code = (
            "import sys; from quarterdeck.cli.main import main;"
            f"main({arguments!r});"
            "heavy = {'anyio', 'msgspec', 'starlette', 'uvicorn', 'sqlite3', 'ssl', 'asyncio'};"
            "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stderr == "[]\n"


def installed(home: Path, *more: str) -> str:
    """Run `completion install` with a home folder; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "quarterdeck", "completion", "install", *more],
        env={**os.environ, "HOME": str(home), "XDG_DATA_HOME": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def test_scripts_are_installed_where_shells_look_and_removed_again(tmp_path: Path) -> None:
    foreign = tmp_path / ".local/share" / PATHS["zsh"]
    foreign.parent.mkdir(parents=True)
    foreign.write_text("#compdef quarterdeck\nmine\n")
    for shell in SHELLS:
        printed = installed(tmp_path, "--shell", shell)
        assert PATHS[shell] in printed
        assert PATHS["man"] in printed
    assert "fpath+=" not in installed(tmp_path, "--shell", "zsh")  # it was not installed
    bash = tmp_path / ".local/share" / PATHS["bash"]
    assert "complete -F _quarterdeck quarterdeck" in bash.read_text()
    page = tmp_path / ".local/share" / PATHS["man"]
    assert page.read_text().startswith(".TH QUARTERDECK 1")
    for shell in SHELLS:
        installed(tmp_path, "--shell", shell, "--remove")
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left == [foreign]
    assert foreign.read_text().endswith("mine\n")


def test_files_of_a_wheel_are_linked_so_that_an_upgrade_renews_them(tmp_path: Path) -> None:
    written = write_files(tmp_path / "made")
    for source, path in written.items():
        target = tmp_path / "env" / path
        target.parent.mkdir(parents=True)
        Path(source).rename(target)
    environ = {"XDG_DATA_HOME": str(tmp_path / "data")}
    packaged = {reader: tmp_path / "env/share" / path for reader, path in PATHS.items()}
    files = linked_files(environ, packaged, tuple(PATHS))
    assert [each.install() for each in files] == ["linked"] * 4
    assert [each.install() for each in files] == ["found"] * 4
    clone = linked_files(environ, {}, tuple(PATHS))
    assert [each.install() for each in clone] == ["copied"] * 4
    assert all(each.target.is_file() and not each.target.is_symlink() for each in files)
    assert [each.install() for each in files] == ["linked"] * 4
    assert [each.remove() for each in files] == ["removed"] * 4
    assert [each.remove() for each in files] == ["missing"] * 4
    # `pip install --user` puts them there itself.
    same = linked_files({"XDG_DATA_HOME": str(tmp_path / "env/share")}, packaged, ("man",))
    assert [same[0].install(), same[0].remove(), same[0].target.is_file()] == [
        "found",
        "missing",
        True,
    ]


def test_the_man_page_has_every_command_and_is_plain_roff() -> None:
    page = man_page()
    assert page.isascii()
    for verb in COMMANDS:
        assert f'.SS "quarterdeck {verb}"' in page
        for option in set(words_of(verb).options) - {"--help", "--ready-fd"}:  # it is not shown
            assert option.replace("-", "\\-") in page
    requests = {line.split(" ")[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".PP", ".TP", ".RS", ".RE", ".B", ".I"}


def test_every_parser_is_a_command() -> None:
    modules = {each.name for each in pkgutil.iter_modules(commands.__path__)}
    assert modules == set(COMMANDS)

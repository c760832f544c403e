import os
import subprocess
import sys
from types import ModuleType

import pytest

from quarterdeck import __version__
from quarterdeck.cli.main import VERBS, Verb, main
from quarterdeck.errors import QuarterdeckError


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A verb called `sail`, whose `run` each test fills in."""
    module = ModuleType("quarterdeck_test_verb")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(VERBS, "sail", Verb(module.__name__, "go"))
    return module


def test_the_version_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr() == (f"quarterdeck {__version__}\n", "")


def test_the_help_names_every_verb_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, verb in VERBS.items():
        assert any(line.split() == [name, *verb.summary.split()] for line in lines)


def test_no_verb_is_misuse_and_prints_the_help_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 2
    answers, messages = capsys.readouterr()
    assert answers == ""
    assert messages.startswith("usage: quarterdeck ")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("dmeo", "there is no verb 'dmeo'; did you mean demo?"),
        ("--verison", "there is no option '--verison'; did you mean --version?"),
        ("xyz", "there is no verb 'xyz'; quarterdeck --help lists what there is"),
    ],
)
def test_an_unknown_word_is_misuse_and_the_nearest_is_suggested(
    typed: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed]) == 2
    assert capsys.readouterr() == ("", f"quarterdeck: {message}\n")


def test_a_verb_gets_its_arguments_and_decides_the_status(verb: ModuleType) -> None:
    seen: list[str] = []

    def run(arguments: list[str]) -> int:
        seen.extend(arguments)
        return 7

    vars(verb)["run"] = run
    assert main(["sail", "--fast", "north"]) == 7
    assert seen == ["--fast", "north"]


def test_an_error_of_ours_is_one_line_without_a_traceback(
    verb: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_arguments: list[str]) -> int:
        raise QuarterdeckError("the mast broke; mend it")

    vars(verb)["run"] = run
    assert main(["sail"]) == 1
    assert capsys.readouterr() == ("", "quarterdeck: the mast broke; mend it\n")


def test_an_interrupt_exits_130(verb: ModuleType) -> None:
    def run(_arguments: list[str]) -> int:
        raise KeyboardInterrupt

    vars(verb)["run"] = run
    assert main(["sail"]) == 130


def test_a_reader_who_left_is_not_worth_a_word() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "quarterdeck", "--help"],
            stdout=write_end,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(write_end)
    assert done.stderr == b""


def test_every_verb_in_the_table_has_its_module_and_says_help() -> None:
    for name in VERBS:
        done = subprocess.run(
            [sys.executable, "-m", "quarterdeck", name, "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), name
        assert f"quarterdeck {name}" in done.stdout

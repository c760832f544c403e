import os
import signal
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest

from quarterdeck import __version__
from quarterdeck.cli.arguments import Parser
from quarterdeck.cli.main import COMMANDS, HEADINGS, main
from quarterdeck.errors import QuarterdeckError


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A command called `sail`, whose `run` each test fills in."""
    module = ModuleType("quarterdeck.cli.commands.sail")

    def parser() -> Parser:
        parser = Parser("sail", "")
        parser.add_argument("words", nargs="*")
        parser.add_argument("--fast", action="store_true")
        return parser

    vars(module).update(parser=parser, load=lambda: vars(module)["run"])
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(COMMANDS, "sail", "go")
    return module


def test_the_version_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr() == (f"quarterdeck {__version__}\n", "")


def test_the_help_lists_every_command_with_its_summary(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, summary in COMMANDS.items():
        assert any(line.split() == [name, *summary.split()] for line in lines)


def test_the_help_groups_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, heading in HEADINGS.items():
        assert lines[lines.index(f"{heading}:") + 1].split()[0] == name


def test_no_command_is_misuse_and_prints_the_help_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 2
    answers, messages = capsys.readouterr()
    assert answers == ""
    assert messages.startswith("usage: quarterdeck ")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("dmeo", "unknown command 'dmeo'; did you mean demo?"),
        ("--verison", "unknown option '--verison'; did you mean --version?"),
        ("xyz", "unknown command 'xyz'; see quarterdeck --help"),
    ],
)
def test_an_unknown_command_is_misuse_and_the_nearest_is_suggested(
    typed: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([typed]) == 2
    assert capsys.readouterr() == ("", f"quarterdeck: {message}\n")


def test_a_command_gets_its_arguments_and_decides_the_status(verb: ModuleType) -> None:
    seen: list[object] = []

    def run(chosen: Namespace) -> int:
        seen.extend((chosen.fast, chosen.words))
        return 7

    vars(verb)["run"] = run
    assert main(["sail", "--fast", "north"]) == 7
    assert seen == [True, ["north"]]


def test_an_error_of_ours_is_one_line_without_a_traceback(
    verb: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_chosen: Namespace) -> int:
        raise QuarterdeckError("the mast broke; mend it")

    vars(verb)["run"] = run
    assert main(["sail"]) == 1
    assert capsys.readouterr() == ("", "quarterdeck: the mast broke; mend it\n")


def test_an_interrupt_exits_130(verb: ModuleType) -> None:
    def run(_chosen: Namespace) -> int:
        raise KeyboardInterrupt

    vars(verb)["run"] = run
    assert main(["sail"]) == 130


@pytest.mark.parametrize("arguments", [["sail"], ["--version"]])
def test_ctrl_c_has_its_usual_handler_afterwards(verb: ModuleType, arguments: list[str]) -> None:
    vars(verb)["run"] = lambda _arguments: 0
    before = signal.getsignal(signal.SIGINT)
    main(arguments)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_a_command_is_imported_waits_for_the_import_and_exits_130(
    tmp_path: Path,
) -> None:
    (tmp_path / "slow.py").write_text(
        "import os, signal\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "print('imported', flush=True)\n"
        "from quarterdeck.cli.arguments import Parser\n"
        "def parser(): return Parser('slow', '')\n"
        "def load(): return lambda chosen: print('run')\n",
        encoding="utf-8",
    )
    code = (
        "import sys; from quarterdeck.cli import commands;"
        "from quarterdeck.cli.main import COMMANDS, main;"
        f"commands.__path__.append({str(tmp_path)!r}); COMMANDS['slow'] = '';"
        "sys.exit(main(['slow']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "imported\n")
    assert done.stderr == "quarterdeck: interrupted\n"


def test_nothing_but_signals_is_imported_before_ctrl_c_is_held() -> None:
    code = "import signal, sys; before = set(sys.modules); import quarterdeck.cli.main as main"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; print(*(sys.modules.keys() - before))"],
        env={name: text for name, text in os.environ.items() if name != "COVERAGE_PROCESS_START"},
        capture_output=True,
        text=True,
        check=True,
    )
    ours = {"quarterdeck", "quarterdeck._version", "quarterdeck.cli", "quarterdeck.cli.main"}
    assert set(done.stdout.split()) == ours


FULL = "quarterdeck: No space left on device; fix that and try again\n"
CLOSED = "quarterdeck: standard output is closed; redirect it, for example to /dev/null\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@pytest.mark.parametrize(
    "arguments", ["--version", "demo --list", "demo --plain", "demo --plain --json"]
)
@pytest.mark.parametrize(("target", "message"), [("/dev/full", FULL), ("&-", CLOSED)])
def test_a_full_output_device_is_reported_in_one_line(
    arguments: str, target: str, message: str
) -> None:
    command = f'exec "$0" -m quarterdeck {arguments} >{target}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, message)


def test_without_stderr_the_result_is_still_printed() -> None:
    done = subprocess.run(
        [
            "sh",
            "-c",
            'exec "$0" -m quarterdeck demo --plain --fast --json <&- 2>&-',
            sys.executable,
        ],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert all(line.startswith("{") for line in done.stdout.splitlines())


def test_a_closed_pipe_is_not_reported() -> None:
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


def test_every_command_in_the_table_has_its_module_and_its_help() -> None:
    for name in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "quarterdeck", name, "--help"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), name
        assert f"quarterdeck {name}" in done.stdout

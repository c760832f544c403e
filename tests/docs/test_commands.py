"""The README, `dev.py` and `.ci/run` name the same commands."""

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def dev() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_dev(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "dev.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_readme_shows_the_commands_for_the_demo_and_the_tests(dev: ModuleType) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert dev.TEST_COMMAND == "python3 dev.py test"
    assert dev.TEST_COMMAND in readme
    assert "python3 dev.py demo" in readme


def test_the_build_server_runs_dev_ci() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert lines[-1] == "exec python3 dev.py ci"


def test_ci_checks_runs_the_test_command_and_ends_with_pytests_closing_line(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    started: list[str] = []
    output = "==== 2 failed, 1 passed in 0.12s ====\ndev.py: pytest ended with status 1"

    def start(command: tuple[str, ...], stdout: int | None = None, **_options: object) -> object:
        started.append(shlex.join(command))
        status = int(command[0] == "python3")
        code = f"import sys; print({output!r}); sys.exit({status})"
        return subprocess.Popen([sys.executable, "-c", code], stdout=stdout, text=True)

    monkeypatch.setattr(dev, "setup", lambda: started.append("setup"))
    monkeypatch.setattr(dev, "start", start)
    with pytest.raises(SystemExit) as stopped:
        dev.main("ci")

    checks = {shlex.join(command) for command in dev.CHECKS.values()}
    installing = map(shlex.join, (dev.BROWSER_COMMAND, dev.SHELLS_COMMAND, dev.SERVERS_COMMAND))
    assert set(started[:4]) == {"setup", *installing}
    assert set(started[4:]) == {*checks, dev.TEST_COMMAND}
    assert stopped.value.code == 1
    assert capfd.readouterr().out.splitlines()[-1] == output.splitlines()[0]


@pytest.mark.parametrize(
    "line",
    [
        "===== 12 passed in 3.45s =====",
        "1 failed, 3 passed, 1 skipped in 71.02s (0:01:11)",
        "======= no tests ran in 0.01s =======",
        "===== 3 errors in 0.50s =====",
    ],
)
def test_pytests_closing_line_is_recognised(dev: ModuleType, line: str) -> None:
    assert dev.PYTEST_CLOSING_LINE.match(line)


def test_an_old_python_can_read_dev_py_as_far_as_the_sentence_for_it() -> None:
    tree = ast.parse((ROOT / "dev.py").read_text(encoding="utf-8"), feature_version=(3, 6))
    # Nothing that an old Python would stumble over at run time comes before the check.
    before = tree.body[: _position_of_the_check(tree)]
    assert all(isinstance(node, ast.Expr | ast.Import | ast.ImportFrom) for node in before)
    assert not any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in before
    )


def _position_of_the_check(tree: ast.Module) -> int:
    return next(
        position
        for position, node in enumerate(tree.body)
        if isinstance(node, ast.If) and "version_info" in ast.unparse(node.test)
    )


def test_the_help_names_every_command(dev: ModuleType) -> None:
    shown = re.findall(r"^python3 dev\.py ([\w-]+)", run_dev("help").stdout, re.MULTILINE)
    assert sorted(shown) == sorted([*dev.WITH_ARGUMENTS, *dev.WITHOUT_ARGUMENTS])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tset",), "dev.py: there is no command 'tset'; did you mean test?\n"),
        (("xyz",), "dev.py: there is no command 'xyz'; python3 dev.py help lists them\n"),
        (("clean", "all"), "dev.py: clean takes no arguments; leave out all\n"),
    ],
)
def test_misuse_of_dev_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = run_dev(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)

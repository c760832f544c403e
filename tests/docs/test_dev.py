"""`dev.py` in folders of its own: odd names, half an environment, a reader who leaves."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
ASCII_ONLY = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def checkout(folder: Path) -> Path:
    """Make a folder with as much of the repository as `setup` reads before it installs."""
    folder.mkdir()
    for name in ("dev.py", "pyproject.toml", "constraints.txt", "peers.json"):
        shutil.copy(ROOT / name, folder)
    (folder / "src" / "quarterdeck").mkdir(parents=True)
    shutil.copy(ROOT / "src/quarterdeck/_version.py", folder / "src" / "quarterdeck")
    return folder


def dev_of(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("dev", folder / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_dev(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / "dev.py"), *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def write_program(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    path.chmod(0o755)


def write_pip(folder: Path) -> None:
    """Give `folder` a pip that says what the one of a usable environment says."""
    version = "%d.%d" % sys.version_info[:2]  # noqa: UP031  # as dev.py compares it
    says = f"pip 1.0 from {folder}/.venv/lib/pip (python {version})"
    write_program(folder / ".venv/bin/pip", f"echo '{says}'")


# Names of folders


def test_pip_finds_the_pins_in_a_folder_with_a_space(tmp_path: Path) -> None:
    environment = dev_of(checkout(tmp_path / "a b")).environment()
    for name in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"):
        assert environment[name] == f"{tmp_path.as_uri()}/a%20b/constraints.txt"


def test_a_folder_that_the_locale_cannot_spell_has_the_same_stamp(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "ünï")
    code = f"import os, sys; sys.path.insert(0, os.fsdecode({os.fsencode(folder)!r}))"
    command = [sys.executable, "-c", f"{code}; import dev; print(dev.digest())"]
    stamps = {
        subprocess.check_output(command, env={**os.environ, **variables})
        for variables in ({"PYTHONUTF8": "1"}, ASCII_ONLY)
    }
    assert len(stamps) == 1


# The environment


def test_programs_keep_their_bytecode_whatever_the_shell_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in dev_of(ROOT).environment()


def test_an_environment_without_its_python_is_not_usable(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "q")
    write_pip(folder)
    dev = dev_of(folder)
    assert not dev.is_usable_venv()
    write_program(folder / ".venv/bin/python")
    assert dev.is_usable_venv()


def test_a_python_that_is_missing_in_the_environment_is_not_looked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, started = checkout(tmp_path / "q"), tmp_path / "started"
    write_program(tmp_path / "bin/python", f"touch '{started}'")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(SystemExit):
        dev_of(folder).start(("python", "-m", "pip", "--version"))
    assert not started.exists()
    assert "cannot find python in" in capsys.readouterr().err


def test_a_file_in_place_of_the_environment_is_named(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "q")
    (folder / ".venv").write_text("x", encoding="utf-8")
    done = run_dev(folder, "setup")
    assert done.returncode == 1
    assert f"dev.py: {folder}/.venv is not a folder; remove it" in done.stderr


def test_a_broken_pyproject_is_not_blamed_on_the_network(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "q")
    (folder / "pyproject.toml").write_text("garbage[", encoding="utf-8")
    done = run_dev(folder, "setup")
    assert done.returncode == 1
    assert f"dev.py: {folder}/pyproject.toml is not TOML: " in done.stderr
    assert "network" not in done.stderr


@pytest.mark.parametrize(
    ("complaints", "advice"),
    [
        ("ERROR: No matching distribution found for hatchling", "check the network"),
        ("error: metadata-generation-failed", "fix what it names"),
    ],
)
def test_the_network_is_blamed_only_when_pip_could_not_get_a_package(
    complaints: str, advice: str
) -> None:
    assert dev_of(ROOT).pip_advice(complaints).startswith(advice)


def test_the_last_words_of_a_program_that_ctrl_c_ended_are_not_repeated(
    capfd: pytest.CaptureFixture[str],
) -> None:
    last_words = "import os, sys; print('Traceback', file=sys.stderr, flush=True)"
    code = f"{last_words}; os.kill(os.getpid(), {signal.SIGINT:d})"
    with pytest.raises(KeyboardInterrupt):
        dev_of(ROOT).complaints_of((sys.executable, "-c", code))
    assert capfd.readouterr().err == ""


def test_what_a_program_that_failed_has_said_is_repeated(capfd: pytest.CaptureFixture[str]) -> None:
    command = (sys.executable, "-c", "raise SystemExit('no disk')")
    assert dev_of(ROOT).complaints_of(command) == "no disk\n"
    assert capfd.readouterr().err == "no disk\n"


# Cleaning, and where output goes


def test_clean_removes_data_of_coverage_and_whatever_is_called_like_our_folders(
    tmp_path: Path,
) -> None:
    folder = checkout(tmp_path / "q")
    (folder / ".coverage.d").mkdir()
    for name in (".coverage", ".coverage.host.1", ".coveragerc", ".venv"):
        (folder / name).write_text("x", encoding="utf-8")
    (folder / ".peers" / "node_modules").mkdir(parents=True)
    done = run_dev(folder, "clean")
    assert (done.returncode, done.stderr) == (0, "")
    left = {path.name for path in folder.iterdir() if path.name.startswith(".")}
    assert left == {".coverage.d", ".coveragerc"}


def test_a_reader_of_the_help_who_left_is_not_worth_a_word() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "dev.py", "help"],
        cwd=ROOT,
        stdout=write_end,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("&-", "dev.py: standard output is closed; give it a place to go, such as /dev/null\n"),
        (
            "/dev/full",
            "dev.py: [Errno 28] No space left on device; fix that and run it again\n",
        ),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_an_output_that_takes_nothing_is_one_line(target: str, message: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" dev.py help >{target}', sys.executable],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, message)

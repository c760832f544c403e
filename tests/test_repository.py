"""Promises about the repository itself: what is in it, what is not, and what importing it costs."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import quarterdeck
from tools.check_sizes import problems

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "quarterdeck"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Written in pieces, so that this file does not contain what it looks for.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("npm", "pkg", "github", "com"),
    )
)
# Whose home may stand in an example.
NOBODY = ("user", "me", "you", "dev", "alice")
HOME_PATH = re.compile(
    rf"(?<![\w./-])/(?:root|(?:home|Users)/(?!(?:{'|'.join(NOBODY)})\b)\w+)/[\w.]"
)


def repository_files() -> list[Path]:
    """Return what is tracked, or would be after `git add .`."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (ROOT / name for name in listing.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def repository_texts() -> list[tuple[str, str]]:
    texts = []
    for path in repository_files():
        content = path.read_bytes()
        if b"\0" not in content:
            texts.append((path.relative_to(ROOT).as_posix(), content.decode()))
    return texts


def modules_imported_by(*lines: str) -> set[str]:
    """Return what is in `sys.modules` after `lines` that a bare Python does not have."""
    report = "import sys; print(*sys.modules, file=sys.stderr)"

    # Coverage would have imported half of the standard library before.
    env = {name: text for name, text in os.environ.items() if name != "COVERAGE_PROCESS_START"}

    def modules_after(code: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, check=True
        )
        return set(done.stderr.decode().split())

    return modules_after("\n".join((*lines, report))) - modules_after(report)


def test_every_package_says_what_it_exports() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    for folder in folders:
        init = folder / "__init__.py"
        assert init.is_file(), f"{folder} has no __init__.py"
        names = {
            target.id
            for node in ast.parse(init.read_text(encoding="utf-8")).body
            for target in _targets(node)
            if isinstance(target, ast.Name)
        }
        assert "__all__" in names, f"{init} has no __all__"


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def test_a_function_or_module_beyond_the_limits_is_reported() -> None:
    function = "def f() -> None:\n" + "    print()\n" * 41
    module = "x = 1\n" * 601
    assert problems("a.py", function) == ["a.py:1: f has 41 lines (limit 40)"]
    assert problems("a.py", module) == ["a.py: 601 lines (limit 600)"]
    assert problems("a.py", "x = 1\n" * 600) == []


def test_no_file_names_a_package_registry() -> None:
    for name, text in repository_texts():
        for host in REGISTRY_HOSTS:
            assert host not in text, f"{name} names {host}"


def test_no_file_has_the_markers_of_a_merge_conflict() -> None:
    marker = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
    assert [name for name, text in repository_texts() if marker.search(text)] == []


def test_constraints_are_names_and_versions_only() -> None:
    pin = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!-]*")
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert line.startswith("#") or pin.fullmatch(line), line


def test_constraints_are_sorted_and_say_each_name_once() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [line.partition("==")[0] for line in lines if not line.startswith("#")]
    names = [re.sub(r"[-_.]+", "-", name).lower() for name in pinned]
    assert names == sorted(set(names))


def test_every_npm_package_that_setup_installs_has_a_pin() -> None:
    told = json.loads((ROOT / "peers.json").read_text(encoding="utf-8"))
    nested = {name: pin for name, pin in told["overrides"].items() if isinstance(pin, str)}
    pins = {*told["dependencies"].items(), *nested.items(), *told["overrides"]["acpx"].items()}
    for name, version in pins:
        assert re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version), name
    listing = (ROOT / ".peers/node_modules/.package-lock.json").read_text(encoding="utf-8")
    for path, package in json.loads(listing)["packages"].items():
        # What is for one platform only comes at the version that the package naming it is at.
        if "cpu" not in package:
            assert (path.rpartition("node_modules/")[2], package["version"]) in pins


def test_what_the_tests_import_is_in_the_source_distribution() -> None:
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"/src", "/tests", "/tools"} <= set(included)


def test_the_only_lock_file_is_the_pages_and_it_names_no_registry() -> None:
    locks = {"uv.lock", "poetry.lock", "package-lock.json", "yarn.lock", "pnpm-lock.yaml"}
    kept = [path for path in repository_files() if path.name in locks]
    assert [path.relative_to(ROOT).as_posix() for path in kept] == ["web/package-lock.json"]
    packages = json.loads(kept[0].read_text(encoding="utf-8"))["packages"]
    assert not [name for name, package in packages.items() if "resolved" in package]
    assert [name for name, package in packages.items() if "integrity" not in package] == [""]


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    for name, text in repository_texts():
        found = HOME_PATH.search(text)
        assert found is None, f"{name} says {found[0]}..."


def test_the_version_is_the_same_everywhere() -> None:
    source = PYPROJECT["tool"]["hatch"]["version"]["path"]
    assert (ROOT / source).resolve() == PACKAGE / "_version.py"
    assert metadata.version("quarterdeck") == quarterdeck.__version__


def test_every_change_has_a_kind_and_a_sentence() -> None:
    kinds = "|".join(PYPROJECT["tool"]["towncrier"]["fragment"])
    fragment = re.compile(rf"\+[a-z0-9-]+\.(?:{kinds})\.md")
    for path in (ROOT / "changes").iterdir():
        assert path.name == ".gitignore" or fragment.fullmatch(path.name), path.name
        assert path.name == ".gitignore" or path.read_text(encoding="utf-8").endswith(".\n")


def test_towncrier_can_write_the_changelog() -> None:
    drafted = subprocess.run(
        [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert drafted.returncode == 0, drafted.stderr


def test_importing_quarterdeck_imports_nothing_else() -> None:
    assert modules_imported_by("import quarterdeck") == {"quarterdeck", "quarterdeck._version"}


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_a_question_about_the_command_imports_no_dependency_and_no_verb(option: str) -> None:
    imported = modules_imported_by("from quarterdeck.cli.main import main", f"main([{option!r}])")
    ours = {name for name in imported if name.partition(".")[0] == "quarterdeck"}
    assert ours == {
        "quarterdeck",
        "quarterdeck._version",
        "quarterdeck.cli",
        "quarterdeck.cli.dispatch",
        "quarterdeck.cli.main",
        "quarterdeck.errors",
    }
    assert not imported & {"anyio", "asyncio", "msgspec", "argparse"}

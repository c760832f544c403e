"""The recipes of CONTRIBUTING.md name what exists, and what they ask for is complete.

A recipe is a heading below "Where things go" with numbered steps. In the steps, code is one of:

- a command: `python3 dev.py …` or `.venv/bin/python tools/…`;
- a path in the repository or below `src/quarterdeck`; with a `<placeholder>`, its folder counts;
- a name that one of the files of the same recipe defines: `Class`, `Class.method`, `CONSTANT`.

Words that are none of these are listed in `OTHER_WORDS`.

The second half follows the recipe for a command literally, and checks steps that no other test
checks: a row of a table that was forgotten.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path

import msgspec
import pytest

from quarterdeck import errors
from quarterdeck.agents import built_in_entries
from quarterdeck.agents.environment import key_patterns
from quarterdeck.cli import session_output
from quarterdeck.cli.commands.show import FORMS
from quarterdeck.cli.main import COMMANDS, main
from quarterdeck.policy.rules import KINDS, Rule

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "quarterdeck"
EXPECTED = {
    *("An event type", "An ACP method", "A storage", "An HTTP route", "A command"),
    *("A page screen", "An agent definition", "A rule kind", "A view of the log", "A transport"),
    *("An error", "A dependency", "A document or a decision"),
}
OTHER_WORDS = {
    *("TypedDict", "match", "assert_never", "kill -9", "--help", "fetch"),
    *("parser()", "load()", "feed(event)"),  # what a new module defines
    *("quarterdeck", "methods"),  # keys of JSON
}
COMMAND = re.compile(r"python3 dev\.py ([\w-]+)(.*)|\.venv/bin/python (tools/\w+\.py)(.*)")
PATH = re.compile(r"[\w.@<>-]*/[\w.@<>/-]*|[\w-]+\.(?:py|md|toml|txt|json)")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)?")


def recipes() -> dict[str, str]:
    """Return the numbered steps of each recipe, by its title."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Where things go\n")[2].partition("\n## ")[0]
    found = {}
    for part in section.split("\n### ")[1:]:
        title, _, body = part.partition("\n")
        steps = re.findall(r"^\d+\. .*(?:\n   .*)*", body, re.MULTILINE)
        if steps:
            found[title] = "\n".join(steps)
    return found


RECIPES = recipes()


def code_of(recipe: str) -> list[str]:
    return re.findall(r"`([^`]+)`", re.sub(r"\s+", " ", recipe))


def located(path: str) -> Path | None:
    """Return the file or folder of a path; of one with a placeholder, the folder around that."""
    fixed = path.partition("<")[0]
    if fixed != path:
        fixed = fixed.rpartition("/")[0]
    places = (base / fixed for base in (ROOT, PACKAGE))
    return next((place for place in places if fixed and place.exists()), None)


def defined_in(path: Path) -> set[str]:
    """Return the names that a file defines, members of classes as `Class.member`."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".ts", ".tsx"):
        return set(re.findall(r"\b(?:function|const|let|class|interface|type) (\w+)", text))
    if path.suffix != ".py":
        return set()
    tree = ast.parse(text)
    members = (
        f"{each.name}.{name}"
        for each in tree.body
        if isinstance(each, ast.ClassDef)
        for name in _names(each.body)
    )
    return {*_names(tree.body), *members}


def _names(body: list[ast.stmt]) -> list[str]:
    found = []
    for node in body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found.append(node.name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.append(name)
            case ast.Assign():
                found += [each.id for each in node.targets if isinstance(each, ast.Name)]
            case _:
                pass
    return found


def dev_commands() -> set[str]:
    spec = importlib.util.spec_from_file_location("dev", ROOT / "dev.py")
    assert spec is not None
    assert spec.loader is not None
    dev = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(dev)
    return {*dev.WITH_ARGUMENTS, *dev.WITHOUT_ARGUMENTS}


def test_there_is_a_recipe_for_everything_that_is_added_often() -> None:
    assert set(RECIPES) == EXPECTED
    for title, recipe in RECIPES.items():
        assert len(re.findall(r"^\d+\. ", recipe, re.MULTILINE)) <= 8, title


@pytest.mark.parametrize("title", RECIPES)
def test_every_path_command_and_name_of_a_recipe_exists(title: str) -> None:
    words = [word for word in code_of(RECIPES[title]) if word not in OTHER_WORDS]
    paths = [word for word in words if PATH.fullmatch(word)]
    commands = [word for word in words if COMMAND.fullmatch(word)]
    names = [word for word in words if word not in (*paths, *commands)]

    assert [path for path in paths if located(path) is None] == []
    assert [command for command in commands if not _is_command(command)] == []
    files = {place for path in paths if (place := located(path)) is not None and place.is_file()}
    defined = set().union(*map(defined_in, files))
    assert [name for name in names if not NAME.fullmatch(name) or name not in defined] == []


def _is_command(line: str) -> bool:
    found = COMMAND.fullmatch(line)
    assert found is not None
    command, arguments, tool, _ = found.groups()
    if tool is not None:
        return (ROOT / tool).is_file()
    return command in dev_commands() and all(located(each) for each in arguments.split())


# ---- a command, followed literally --------------------------------------------------------------

HELLO = '''
"""`quarterdeck hello`: greet."""

from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import DONE, Parser


def parser() -> Parser:
    parser = Parser("hello", "Greet.", (("quarterdeck hello Ann", "greet Ann"),))
    parser.add_argument("name", metavar="NAME", help="a name")
    return parser


def load() -> Callable[[Namespace], int]:
    return greet


def greet(chosen: Namespace) -> int:
    print(f"hello {chosen.name}")
    return DONE
'''


@pytest.fixture
def hello(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the module of a new command, and its line in `COMMANDS`."""
    source = tmp_path / "hello.py"
    source.write_text(HELLO, encoding="utf-8")
    name = "quarterdeck.cli.commands.hello"
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(COMMANDS, "hello", "greet")


@pytest.mark.usefixtures("hello")
def test_a_module_and_a_line_make_a_command_with_help_errors_and_completion(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["hello", "Ann"]) == 0
    assert capsys.readouterr() == ("hello Ann\n", "")
    assert main(["hello"]) == 2
    assert "NAME" in capsys.readouterr().err
    assert main(["hello", "--help"]) == 0
    assert "quarterdeck hello Ann" in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert re.search(r"^  hello +greet$", capsys.readouterr().out, re.MULTILINE)
    assert main(["completion", "bash"]) == 0
    assert "hello)" in capsys.readouterr().out


# ---- steps that no other test checks ------------------------------------------------------------


def first_cells(document: str, heading: str) -> list[str]:
    """Return the first column of the table whose first cell of the head is `heading`."""
    text = (ROOT / document).read_text(encoding="utf-8")
    table = re.search(rf"^\| {heading} \|.*\n\| ---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None, f"{document} has no table of {heading}"
    return re.findall(r"^\| `([^`]+)`", table[1], re.MULTILINE)


def test_every_command_has_its_row_in_the_chapter_on_the_command_line() -> None:
    assert first_cells("docs/use/cli.md", "command") == list(COMMANDS)


def test_every_kind_of_rule_has_a_field_a_row_and_a_place_in_the_documents() -> None:
    general = {"decision", "name", "agent", "project"}
    fields = {field.name for field in msgspec.structs.fields(Rule)} - general
    assert fields == set(KINDS)
    assert set(first_cells("docs/embed/policy.md", "kind")) == fields
    chapter = (ROOT / "docs/use/hub.md").read_text(encoding="utf-8")
    assert [kind for kind in fields if f"`{kind}`" not in chapter] == []


@pytest.mark.parametrize("name", built_in_entries())
def test_every_well_known_agent_gets_variables_of_its_own(name: str) -> None:
    assert key_patterns((name, built_in_entries()[name].command))


def test_every_form_of_show_has_a_printer() -> None:
    assert set(FORMS) == set(vars(session_output)["_PRINTERS"])


def test_the_tree_of_errors_is_that_of_the_classes() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"^([│├└─ ]*)(\w+)", errors.__doc__, re.MULTILINE)
    branch: dict[int, str] = {-1: "Exception"}
    listed = {}
    for lines, name in drawn:
        if hasattr(errors, name):
            depth = len(lines) // 4
            branch[depth] = name
            listed[name] = branch[depth - 1]
    classes = {
        name: each.__bases__[0].__name__
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, Exception)
    }
    assert listed == classes

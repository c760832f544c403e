"""What the documents state about the code and about each other is true.

Nothing is listed here: dependencies come from `pyproject.toml`, packages and modules from the file
tree, layers from the import-linter contracts.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from quarterdeck.hub.streams.envelope import METHOD_SCOPES

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "quarterdeck"
DOCS = ROOT / "docs"
DECISIONS = sorted((DOCS / "adr").glob("[0-9]*.md"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("benchmarks/*.md"))
)
PARTS = ("start", "use", "embed", "understand")


def text_of(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def section(path: str, heading: str) -> str:
    """Return what a document has below a heading of the second level."""
    return text_of(path).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def first_cells(table: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)


def names_of(requirements: list[str]) -> set[str]:
    names = (re.match(r"[\w.-]+", each) for each in requirements)
    return {name[0] for name in names if name}


# Dependencies


def test_the_listed_dependencies_are_those_of_the_base_installation() -> None:
    listed = first_cells(section("docs/understand/compatibility.md", "Python and platforms"))
    assert set(listed) == names_of(PYPROJECT["project"]["dependencies"])


@pytest.mark.parametrize("document", ["docs/understand/compatibility.md"])
def test_the_extras_and_what_they_install_are_named(document: str) -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    text = text_of(document)
    for extra in extras.keys() - {"dev"}:
        assert f"`{extra}`" in text
        assert all(f"`{name}`" in text for name in names_of(extras[extra]))
        assert f"`quarterdeck[{extra}]`" in text_of("docs/start/installing.md")


def test_the_oldest_python_is_named() -> None:
    oldest = PYPROJECT["project"]["requires-python"].removeprefix(">=")
    for document in ("README.md", "docs/start/installing.md", "docs/understand/compatibility.md"):
        assert f"Python {oldest}" in " ".join(text_of(document).split()), document


# Packages, layers, asyncio


def packages() -> set[str]:
    return {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def test_the_table_of_packages_lists_every_package() -> None:
    listed = first_cells(section("docs/understand/architecture.md", "Packages"))
    assert sorted(listed) == sorted(f"quarterdeck.{name}" for name in packages())


def definitions(path: Path) -> set[str]:
    """Return the functions, classes and methods of a module; of one of the page, its words."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return set(re.findall(r"#?\w+", text))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    top = [each for each in ast.parse(text).body if isinstance(each, kinds)]
    inner = {f"{outer.name}.{name}" for outer in top for name in _members(outer)}
    return inner | {each.name for each in top}


def _members(outer: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Iterator[str]:
    for each in outer.body:
        match each:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield each.name
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call()):
                yield name  # a method that a function makes
            case _:
                pass


@pytest.mark.parametrize(
    "heading", ["From stdout to the page", "A permission request, there and back"]
)
def test_every_step_of_the_architecture_names_code_that_exists(heading: str) -> None:
    rows = [
        line
        for line in section("docs/understand/architecture.md", heading).splitlines()
        if re.match(r"\| \d+\.", line)
    ]
    for row in rows:
        places = re.findall(r"`([\w/]+\.\w+): ([^`]+)`", row)
        assert places, row
        for path, name in places:
            folder = ROOT if path.startswith("web/") else PACKAGE
            assert name in definitions(folder / path), f"{path}: {name}"


def test_every_runner_is_named_where_its_interface_is_described() -> None:
    opening = ast.get_docstring(ast.parse((PACKAGE / "runner" / "api.py").read_text())) or ""
    listed = re.findall(r"^    (\w+)   ", opening, re.MULTILINE)
    names = ("answer_permission", "open_log")
    runners = {
        name.partition(".")[0]
        for folder in ("runner", "hub")
        for module in (PACKAGE / folder).rglob("*.py")
        for found in (definitions(module),)
        for name in found
        if all(f"{name.partition('.')[0]}.{each}" in found for each in names)
    }
    assert sorted(listed) == sorted(runners - {"RunnerApi"})


def test_invariants_that_code_refers_to_are_described() -> None:
    text = text_of("docs/understand/invariants.md")
    described = set(re.findall(r"^\| (INV-\d+) ", text, re.MULTILINE))
    named = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"INV-\d+", path.read_text(encoding="utf-8"))
    }
    assert named <= described


def test_the_diagram_of_layers_names_what_the_contracts_name() -> None:
    (diagram,) = re.findall(r"```text\n(.*?)```", section("CONTRIBUTING.md", "Layers"), re.DOTALL)
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    layers = {
        name
        for contract in contracts
        if contract["type"] == "layers"
        for layer in contract["layers"]
        for name in re.findall(r"\w+", layer)
    }
    drawn = {name for name in re.findall(r"\w+", diagram) if name in layers | packages()}
    private = {name for name in layers if name.startswith("_")}
    assert drawn == layers - private


def imports_asyncio(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    return "asyncio" in found


def test_the_modules_that_import_asyncio_are_the_listed_ones() -> None:
    listed = first_cells(section("CONTRIBUTING.md", "Where asyncio is allowed"))
    importing = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in PACKAGE.rglob("*.py")
        if imports_asyncio(path)
    }
    assert listed

    def covers(name: str, module: str) -> bool:
        return module == name or module.startswith(f"{name}.")

    unlisted = {each for each in importing if not any(covers(name, each) for name in listed)}
    unused = {name for name in listed if not any(covers(name, each) for each in importing)}
    assert (sorted(unlisted), sorted(unused)) == ([], [])


# Decisions


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in DECISIONS]
    assert numbers == list(range(1, len(DECISIONS) + 1))


def test_the_index_lists_every_decision_in_order_under_its_title() -> None:
    listed = re.findall(r"^(\d+)\. \[(.+)\]\((.+)\)$", text_of("docs/adr/README.md"), re.MULTILINE)
    written = [
        (str(int(path.name[:4])), path.read_text(encoding="utf-8").splitlines()[0][2:], path.name)
        for path in DECISIONS
    ]
    assert listed == written


# Links and paths


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as the usual renderers make them."""
    tokens = MarkdownIt().parse(path.read_text(encoding="utf-8"))
    titles = [
        following.content for token, following in pairwise(tokens) if token.type == "heading_open"
    ]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_of_a_document_leads_somewhere(document: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", text_of(document))
    for link in (first or second for first, second in links):
        target, _, anchor = link.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        path = (ROOT / document).parent / target if target else ROOT / document
        assert path.exists(), f"{document}: {link}"
        if anchor:
            assert anchor in anchors(path), f"{document}: {link}"


def test_every_page_is_in_the_table_of_documents() -> None:
    index = text_of("docs/README.md")
    for part in PARTS:
        pages = sorted((DOCS / part).iterdir())
        assert pages
        for page in pages:
            assert f"({part}/{page.name})" in index, page


def repository_texts() -> list[tuple[str, str]]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    kept = [path for path in paths if path.suffix in (".py", ".md", ".toml", ".ts", ".tsx")]
    return [
        (path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for path in kept
        if path.is_file()
    ]


CITED = re.compile(r"\bdocs/(?:adr/\d{4}(?!\d|-)|[\w./-]+\.(?:md|toml|png|webp))")


def test_every_document_that_is_cited_exists() -> None:
    numbers = {f"docs/adr/{path.name[:4]}" for path in DECISIONS}
    for name, text in repository_texts():
        for cited in CITED.findall(text):
            assert cited in numbers or (ROOT / cited).exists(), f"{name}: {cited}"


def test_the_moving_picture_of_the_readme_is_small() -> None:
    (picture,) = re.findall(r"!\[[^\]]+\]\((\S+\.webp)\)", text_of("README.md"))
    assert (ROOT / picture).stat().st_size < 1_500_000


# Scopes


def test_the_scopes_of_methods_are_those_of_the_code() -> None:
    table = section("docs/embed/streams.md", "Envelopes")
    rows = re.findall(r"^\| `(view|prompt|approve|admin)` \| (.+) \|$", table, re.MULTILINE)
    listed = {method: scope for scope, cell in rows for method in re.findall(r"`(\w+/\w+)`", cell)}
    assert listed == {str(method): scope for method, scope in METHOD_SCOPES.items()}


# macOS

LINUX_ALONE = re.compile(
    r"/proc\b|/sys/|/run/|/dev/shm|\b(?:landlock|pidfd|prctl|openat2|renameat2|epoll|inotify|cgroup"
    r"|memfd_create|O_PATH|O_TMPFILE|SO_PEERCRED|SO_PEERPIDFD|AF_NETLINK|CLOCK_BOOTTIME|fdatasync"
    r"|posix_fallocate|sched_getaffinity|F_SETPIPE_SZ|TCP_USER_TIMEOUT|pipe2|waitid|SOCK_CLOEXEC"
    r"|systemctl|malloc_trim|unshare|bwrap|LISTEN_FDS)",
    re.IGNORECASE,
)
POLICY = "policy/"
"""Reads command lines of every system, and runs none."""


def test_every_module_with_something_of_linux_alone_is_in_the_table_for_macos() -> None:
    listed = set(
        re.findall(r"`([\w/]+\.py)`", section("docs/understand/compatibility.md", "macOS"))
    )
    uses = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith(POLICY) or path.name == "__init__.py":
            continue
        if found := LINUX_ALONE.search("\n".join(words_of(path))):
            uses[name] = found[0]
    missing = {name: what for name, what in uses.items() if name not in listed}
    assert not missing, "add a row to docs/understand/compatibility.md, with its way on macOS"
    assert all((PACKAGE / name).exists() for name in listed)


def words_of(path: Path) -> Iterator[str]:
    """Yield the names and texts in the code of a module, without comments and docstrings."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word):
                yield word
            case ast.Constant(value=str(word)) if id(node) not in docstrings:
                yield word

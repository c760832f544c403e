"""Check every fenced block in the documents: Python runs, commands succeed, JSON parses.

- `python`: the blocks of a document run in order, in one namespace, in an empty folder.
- `sh`: every line is a command; `console`: every line after `$ ` is one, the rest is its output.
  A block is one script, run from the root of the repository; it must exit with 0.
- `json`, `jsonc`: must parse.
- Blocks in the languages of `SHOWN_ONLY` are not checked; any other language fails.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if path.name != "CHANGELOG.md"  # made of fragments, which have no blocks
)

SHOWN_ONLY = frozenset({"text", "mermaid", "toml"})

# Commands that this test must not run, each with what covers it instead. An entry that no document
# uses fails the test.
NOT_RUN_HERE = {
    "python3 dev.py test": "would run itself; `dev.py ci` runs it, see test_commands.py",
    "python3 dev.py test tests/wire -k framing": "the same with arguments for pytest",
    "python3 dev.py test -m real_agents -k goose": "needs an installed third-party agent",
    "python3 dev.py agents-table --only goose": "needs an installed third-party agent",
    "python3 dev.py check": "`dev.py ci` does the same, see test_commands.py",
    "python3 dev.py ci": ".ci/run is this command, see test_commands.py",
    "python3 dev.py setup": "every other command begins with it",
    "python3 dev.py fix": "changes the files that are being tested",
    "python3 dev.py bench": "takes minutes",
    "python3 dev.py fuzz policy --lines 100000": "takes minutes",
    "python3 dev.py clean": "removes the environment that this test runs in",
}

SECONDS_FOR_ONE_BLOCK = (
    200  # only for blocks that hang: twenty commands take a minute on a busy machine
)


class Block(NamedTuple):
    language: str
    text: str
    line: int
    """Where the text begins in the document, counted from 1."""


def blocks(document: str) -> list[Block]:
    tokens = MarkdownIt().parse((ROOT / document).read_text(encoding="utf-8"))
    return [
        Block(token.info.strip(), token.content, token.map[0] + 2)
        for token in tokens
        if token.type == "fence" and token.map
    ]


def commands(block: Block) -> list[str]:
    """Return the commands of a `sh` or `console` block, continued lines joined."""
    text = block.text.replace("\\\n", " ")
    if block.language == "console":
        return [line[2:].strip() for line in text.splitlines() if line.startswith("$ ")]
    # A comment explains to the reader; the command is what is typed.
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def without_comments(jsonc: str) -> str:
    """Take comments and commas before a closing bracket out of JSON."""
    for removed in (r"//[^\n]*|/\*.*?\*/", r",(?=\s*[}\]])"):
        token = re.compile(rf'("(?:\\.|[^"\\])*")|{removed}', re.DOTALL)
        jsonc = token.sub(lambda found: found[1] or "", jsonc)
    return jsonc


def run(command: list[str], folder: Path, home: Path) -> None:
    """Run with the programs of this environment and a home of its own; fail if it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_FOR_ONE_BLOCK,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"exit status {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_block_names_a_language_we_know(document: str) -> None:
    known = SHOWN_ONLY | {"python", "sh", "console", "json", "jsonc"}
    for block in blocks(document):
        assert block.language in known, f"{document}:{block.line - 1}: {block.language!r}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_python_in_a_document_runs(document: str, tmp_path: Path) -> None:
    script = ""
    for block in blocks(document):
        if block.language == "python":
            # Each block stands on its own lines, so that a traceback names those of the document.
            script += "\n" * (block.line - 1 - script.count("\n")) + block.text
    source, folder = tmp_path / Path(document).name, tmp_path / "folder"
    source.write_text(script, encoding="utf-8")
    folder.mkdir()
    run([sys.executable, "-W", "error", str(source)], folder, tmp_path)


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.slow
def test_the_commands_in_a_document_succeed(document: str, tmp_path: Path) -> None:
    for block in blocks(document):
        if block.language in ("sh", "console"):
            script = [line for line in commands(block) if line not in NOT_RUN_HERE]
            if any(line.startswith("quarterdeck up") for line in script):
                script.insert(0, "trap 'quarterdeck down > /dev/null' EXIT")  # also if it fails
            run(["sh", "-eu", "-c", "\n".join(script)], ROOT, tmp_path)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_json_in_a_document_parses(document: str) -> None:
    for block in blocks(document):
        if block.language in ("json", "jsonc"):
            text = block.text if block.language == "json" else without_comments(block.text)
            try:
                json.loads(text)
            except ValueError as error:
                pytest.fail(f"{document}:{block.line}: {error}", pytrace=False)


def test_every_command_that_is_not_run_here_is_still_in_a_document() -> None:
    used = {
        command
        for document in DOCUMENTS
        for block in blocks(document)
        if block.language in ("sh", "console")
        for command in commands(block)
    }
    assert sorted(NOT_RUN_HERE.keys() - used) == []


def test_comments_in_a_string_are_not_comments() -> None:
    jsonc = '{"a": "http://x", /* one */ "b": [1, 2,], // two\n}'
    assert json.loads(without_comments(jsonc)) == {"a": "http://x", "b": [1, 2]}


def test_a_console_block_is_commands_and_their_output() -> None:
    block = Block("console", "$ one \\\n  two\noutput\n$ three\n", 1)
    assert [command.split() for command in commands(block)] == [["one", "two"], ["three"]]


def test_a_sh_block_is_commands_and_comments() -> None:
    assert commands(Block("sh", "# why\none    # because\n\ntwo\n", 1)) == ["one", "two"]

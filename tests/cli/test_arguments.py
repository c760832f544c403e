"""Command lines: understood in any order, and refused in a sentence."""

import importlib

import pytest

from quarterdeck.cli.commands import demo, devices, run, show, tail
from quarterdeck.cli.main import COMMANDS
from quarterdeck.errors import Misused


def test_options_can_be_between_the_positional_arguments() -> None:
    chosen = run.parser().read(["demo", "--json", "hello"])
    assert chosen is not None
    assert (chosen.words, chosen.json) == (["demo", "hello"], True)
    chosen = devices.parser().read(["rename", "--json", "7c", "phone"])
    assert chosen is not None
    assert (chosen.action, chosen.words) == ("rename", ["7c", "phone"])
    chosen = show.parser().read(["--as", "state", "3f", "--at", "5"])
    assert chosen is not None
    assert (chosen.session, chosen.form, chosen.at) == ("3f", "state", 5)


def test_omitted_options_have_their_defaults() -> None:
    chosen = devices.parser().read([])
    assert chosen is not None
    assert (chosen.action, chosen.words, chosen.scope, chosen.expires) == ("list", [], None, None)
    chosen = tail.parser().read([])
    assert chosen is not None
    assert (chosen.session, chosen.from_seq) == (None, None)


@pytest.mark.parametrize(
    ("parser", "typed", "message"),
    [
        (show.parser, [], "missing SESSION; see quarterdeck show --help"),
        (
            show.parser,
            ["x", "--as", "xml"],
            "--as cannot be 'xml'; use one of text, context, packets",
        ),
        (show.parser, ["x", "--at", "-1"], "--at"),
        (show.parser, ["x", "--at", "a"], "--at: 'a' is not a whole number, 0 or more; see"),
        (show.parser, ["x", "--form"], "unknown argument '--form'; did you mean --from?"),
        (
            devices.parser,
            ["remove"],
            "ACTION cannot be 'remove'; use one of list, pair",
        ),
        (demo.parser, ["--fats"], "unknown argument '--fats'; did you mean --fast?"),
    ],
)
def test_an_invalid_command_line_is_reported_in_one_line(
    parser: object, typed: list[str], message: str
) -> None:
    assert callable(parser)
    with pytest.raises(Misused) as refused:
        parser().read(typed)
    assert message in str(refused.value)


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_is_printed_with_examples_and_nothing_else_is_done(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = importlib.import_module(f"quarterdeck.cli.commands.{verb}")
    assert command.parser().read(["--help"]) is None
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: quarterdeck {verb}")
    assert "examples:" in printed


def test_help_after_two_dashes_belongs_to_the_agent() -> None:
    assert run.parser().read(["hello", "--help"]) is None
    chosen = run.parser().read(["hello", "--", "my-agent", "--help"])
    assert chosen is not None
    assert (chosen.words, chosen.program) == (["hello"], ["my-agent", "--help"])


@pytest.mark.parametrize("verb", [*COMMANDS, "acp serve"])
def test_help_breaks_lines_between_words(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, *rest = verb.split()
    parser = importlib.import_module(f"quarterdeck.cli.commands.{name}").parser()
    parser = parser.subparsers[rest[0]] if rest else parser
    monkeypatch.setenv("COLUMNS", "200")
    words = set(parser.format_help().split())
    monkeypatch.setenv("COLUMNS", "60")
    narrow = parser.format_help()
    assert set(narrow.split()) - {"\\"} == words
    assert max(map(len, narrow.splitlines())) <= 60

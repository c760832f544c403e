"""Command lines: understood in any order, and refused in a sentence."""

import pytest

from quarterdeck.cli.arguments import read
from quarterdeck.cli.command import wants_help
from quarterdeck.cli.parsers import (
    PARSERS,
    demo_parser,
    devices_parser,
    run_parser,
    show_parser,
    tail_parser,
)
from quarterdeck.errors import Misused


def test_options_may_stand_between_the_words() -> None:
    chosen = read(run_parser(), ["demo", "--json", "hello"])
    assert chosen is not None
    assert (chosen.words, chosen.json) == (["demo", "hello"], True)
    chosen = read(devices_parser(), ["rename", "--json", "7c", "phone"])
    assert chosen is not None
    assert (chosen.action, chosen.words) == ("rename", ["7c", "phone"])
    chosen = read(show_parser(), ["--as", "state", "3f", "--at", "5"])
    assert chosen is not None
    assert (chosen.session, chosen.form, chosen.at) == ("3f", "state", 5)


def test_what_is_left_out_has_its_default() -> None:
    chosen = read(devices_parser(), [])
    assert chosen is not None
    assert (chosen.action, chosen.words, chosen.scope) == ("list", [], "approve")
    chosen = read(tail_parser(), [])
    assert chosen is not None
    assert (chosen.session, chosen.from_seq) == (None, None)


@pytest.mark.parametrize(
    ("parser", "typed", "message"),
    [
        (show_parser, [], "the following arguments are required: SESSION; quarterdeck show --help"),
        (show_parser, ["x", "--as", "xml"], "invalid choice: 'xml'"),
        (show_parser, ["x", "--at", "-1"], "--at"),
        (show_parser, ["x", "--form"], "show has no argument '--form'; did you mean --from?"),
        (devices_parser, ["remove"], "invalid choice: 'remove'"),
        (demo_parser, ["--fats"], "demo has no argument '--fats'; did you mean --fast?"),
    ],
)
def test_what_cannot_be_understood_is_a_sentence(
    parser: object, typed: list[str], message: str
) -> None:
    assert callable(parser)
    with pytest.raises(Misused) as refused:
        read(parser(), typed)
    assert message in str(refused.value)


@pytest.mark.parametrize("verb", PARSERS)
def test_help_is_printed_with_examples_and_nothing_else_is_done(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read(PARSERS[verb](), ["--help"]) is None
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: quarterdeck {verb}")
    assert "examples:" in printed


def test_help_behind_two_dashes_belongs_to_the_agent() -> None:
    assert wants_help(["hello", "--help"])
    assert not wants_help(["hello", "--", "my-agent", "--help"])

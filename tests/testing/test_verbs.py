import ast
import signal
from pathlib import Path

import pytest

from quarterdeck.testing.turns import _PLAYERS
from quarterdeck.testing.verbs import VERBS, signal_number


def test_every_verb_can_be_played() -> None:
    assert _PLAYERS.keys() == VERBS.keys()


def test_every_verb_is_played_by_a_test_with_a_real_process() -> None:
    source = Path(__file__).with_name("test_player.py").read_text(encoding="utf-8")
    keys = {
        key.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    assert sorted(VERBS.keys() - keys) == []


@pytest.mark.parametrize("name", ["KILL", "SIGKILL"])
def test_a_signal_has_two_names(name: str) -> None:
    assert signal_number(name) == signal.SIGKILL


def test_a_word_that_is_no_signal_has_no_number() -> None:
    assert signal_number("LOUD") is None


def test_every_verb_and_option_is_documented() -> None:
    document = Path(__file__).parents[2] / "docs" / "embed" / "scripted-agent.md"
    text = document.read_text(encoding="utf-8")
    for name, verb in VERBS.items():
        for word in (name, *verb.options):
            assert f"`{word}`" in text, f"{name}: {word}"

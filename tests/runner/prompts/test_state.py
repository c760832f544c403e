from typing import get_args

import pytest

from quarterdeck.cli.turns import _has_ended
from quarterdeck.errors import CommandFailed
from quarterdeck.runner import is_prompt_state, is_settled
from quarterdeck.runner.prompts.state import PromptState


def test_every_state_is_known_and_either_settled_or_not() -> None:
    states = get_args(PromptState)
    assert all(is_prompt_state(state) for state in states)
    assert {state for state in states if not is_settled(state)} == {"queued", "running"}


@pytest.mark.parametrize("value", ["held", "", None, 1, ["done"]])
def test_anything_else_is_no_state(value: object) -> None:
    assert not is_prompt_state(value)


def test_a_state_of_a_newer_hub_ends_the_command_with_what_to_do() -> None:
    assert _has_ended({"state": "done"})
    assert not _has_ended({"state": "running"})
    with pytest.raises(CommandFailed, match=r"'held'.*update quarterdeck"):
        _has_ended({"state": "held"})

"""What is an agent, and how it is described."""

from typing import Any

import pytest

from quarterdeck.agent import AgentTurn, Info, Mode, Stop
from quarterdeck.agent.definition import inspect_agent
from quarterdeck.errors import AgentError


class Plain:
    async def prompt(self, turn: AgentTurn) -> None:
        turn.say("hi")


def plain(**members: Any) -> Any:
    return type("Changed", (Plain,), members)()


def test_a_bare_agent_offers_nothing_else() -> None:
    found = inspect_agent(Plain())
    assert found.info["name"] == "agent"
    assert found.modes == ()
    assert found.default_mode is None
    assert not found.has_config_options
    assert found.prompt_capabilities == {"image": False, "audio": False, "embeddedContext": False}
    assert found.logout is None


def test_modes_may_be_objects_or_mappings_and_the_first_is_the_default() -> None:
    found = inspect_agent(plain(modes=[Mode("a", "A", "first"), {"id": "b", "name": "B"}]))
    assert found.modes == (
        {"id": "a", "name": "A", "description": "first"},
        {"id": "b", "name": "B"},
    )
    assert found.default_mode == "a"
    assert (
        inspect_agent(plain(modes=[Mode("a", "A"), Mode("b", "B")], default_mode="b")).default_mode
        == "b"
    )
    assert found.has_config_options


def test_info_may_be_an_object_or_a_mapping() -> None:
    assert inspect_agent(plain(info=Info("x", "1"))).info == {"name": "x", "version": "1"}
    mapping = {"name": "x", "version": "1", "title": "X", "_meta": {}}
    assert inspect_agent(plain(info=mapping)).info == mapping


@pytest.mark.parametrize(
    ("agent", "sentence"),
    [
        (object(), "object is not an agent; pass a function of a turn or an object with prompt"),
        (Plain, "Plain is not an agent; pass a function of a turn or an object with prompt"),
        (plain(prompt=3), "Changed is not an agent; pass a function"),
        (plain(info={"name": "x"}), "the info of an agent needs a name and a version"),
        (plain(modes=[{"id": 1, "name": "x"}]), "a mode needs an id and a name"),
        (plain(modes=[Mode("a", "A")], default_mode="z"), "the default mode 'z' is not among"),
        (plain(prompt_capabilities={"smell": True}), "there is no prompt capability 'smell'"),
    ],
)
def test_what_is_no_agent_is_refused_with_a_sentence(agent: Any, sentence: str) -> None:
    with pytest.raises(AgentError) as caught:
        inspect_agent(agent)
    assert str(caught.value).startswith(sentence)


def test_a_reason_to_stop_is_one_of_acps() -> None:
    assert Stop("refusal").reason == "refusal"
    with pytest.raises(AgentError, match="there is no stop reason 'tired'; choose from end_turn, "):
        Stop("tired")

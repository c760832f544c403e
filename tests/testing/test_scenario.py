import json
import tomllib
from typing import Any

import pytest

from quarterdeck.errors import ScenarioInvalid
from quarterdeck.testing.scenario import ScriptedTurn, Step, parse_scenario, read_scenario

TOML = """
name = "small"
framing = "headers"
ignore = ["eof", "SIGTERM"]
load = [{say = "old"}]

[sessions]
modes = ["ask"]

[[turns]]
when = "hello"
steps = [{tool = "t", title = "T"}, {repeat = 2, steps = [{say = "{n}", pause = 1}]}]
"""


ODD_MODES: list[Any] = [[1], [{}], 5, {"availableModes": 5}, {"availableModes": [1]}]


def reason(table: Any) -> str:
    """Return why a scenario is refused."""
    text = table if isinstance(table, str) else json.dumps(table)
    with pytest.raises(ScenarioInvalid) as refused:
        parse_scenario(text, "x.toml")
    assert refused.value.source == "x.toml"
    assert str(refused.value) == f"cannot play x.toml: {refused.value.reason}"
    return refused.value.reason


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def steps(*tables: Any) -> dict[str, Any]:
    return {"turns": [{"steps": list(tables)}]}


def test_toml_and_json_of_the_same_shape_are_the_same_scenario() -> None:
    assert parse_scenario(json.dumps(tomllib.loads(TOML)), "x") == parse_scenario(TOML, "x")


def test_a_scenario_is_read_into_frozen_values() -> None:
    scenario = parse_scenario(TOML, "x.toml")
    assert scenario.name == "small"
    assert scenario.ignore == {"eof", "TERM"}
    assert scenario.load == (Step("say", "old", {}),)
    assert scenario.turns == (
        ScriptedTurn(
            "hello",
            (
                Step("tool", "t", {"title": "T"}),
                Step("repeat", 2, {"steps": (Step("say", "{n}", {"pause": 1}),)}),
            ),
        ),
    )


def test_the_mark_that_some_editors_write_first_is_no_part_of_the_text() -> None:
    assert parse_scenario("\ufeff" + TOML, "x") == parse_scenario(TOML, "x")


def test_an_empty_scenario_is_one() -> None:
    assert parse_scenario("", "x").turns == ()


def test_the_verb_is_found_whatever_the_order_of_the_keys() -> None:
    (turn,) = read_scenario(steps({"title": "T", "tool": "t"}), "x").turns
    assert turn.steps == (Step("tool", "t", {"title": "T"}),)


def test_prompts_scripted_as_a_method_are_turns() -> None:
    scripted = {"methods": {"session/prompt": [[{"say": "a"}], [{"say": "b"}]]}}
    turns = read_scenario(scripted, "x").turns
    assert [turn.steps[0].value for turn in turns] == ["a", "b"]


def test_one_list_of_steps_is_for_every_call_of_a_method() -> None:
    methods = read_scenario({"methods": {"logout": [{"result": {}}]}}, "x").methods
    assert methods == {"logout": ((Step("result", {}, {}),),)}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (steps({"say": "a"}, {"sya": "b"}), "turn 1, step 2: no verb among sya; did you mean say?"),
        (
            steps({"say": "a", "think": "b"}),
            "turn 1, step 1: say and think are both verbs; make two steps of them",
        ),
        (
            steps({"say": "a", "peices": 2}),
            "turn 1, step 1: there is no key 'peices' of say; did you mean pieces?",
        ),
        (
            steps({"say": "a", "pieces": 0}),
            "turn 1, step 1: pieces is 0; write a whole number of at least 1",
        ),
        *(
            (
                steps({verb: value, count: 1_000_001, **options}),
                f"turn 1, step 1: {count} is 1000001;"
                " write a whole number of at least 1 and at most 1000000",
            )
            for verb, value, count, options in (
                ("say", "a", "pieces", {}),
                ("stderr", "a", "times", {}),
                ("repeat", 1, "repeat", {"steps": []}),
            )
        ),
        (
            steps({"pause": 10**400}),
            f"turn 1, step 1: pause is {10**400}; write a number of at least 0",
        ),
        (steps({"pause": float("nan")}), "turn 1, step 1: pause is nan; write a number"),
        ({"ignore": ["KILL"]}, "ignore is ['KILL']; write a list of \"eof\" and names of signals"),
        (
            {"ignore": ["SIGSTOP"]},
            "ignore is ['SIGSTOP']; write a list of \"eof\" and names of signals, without KILL",
        ),
        *(
            ({"sessions": {"modes": modes}}, f"sessions: modes is {modes!r}; write a list of names")
            for modes in ODD_MODES
        ),
        ("[1]", "it is a list; write a table"),
        (steps({"raw": nested(120)}), "tables and lists 100 deep; make it flatter"),
        (steps({"usage": 5}), "turn 1, step 1: usage needs size; add it"),
        (steps("say"), 'turn 1, step 1: a step is a table; write {say = "..."}'),
        (
            steps({"finish": "t", "status": "done"}),
            "turn 1, step 1: status is 'done'; write one of pending, in_progress, completed,",
        ),
        (
            steps({"crash": "LOUD"}),
            "turn 1, step 1: crash is 'LOUD';"
            ' write an exit status or the name of a signal, such as "KILL"',
        ),
        (
            steps({"garbage": "xyz", "encoding": "hex"}),
            "turn 1, step 1: garbage is not hex: non-hexadecimal number found in"
            " fromhex() arg at position 0; fix it",
        ),
        (
            steps({"ask": "t", "allowed": [{"say": 1}]}),
            "turn 1, step 1, allowed, step 1: say is 1; write a text",
        ),
        (
            steps({"late": [{}]}),
            "turn 1, step 1, late, step 1: no verb among no keys; the verbs are say, think, user,",
        ),
        ({"new": [{"pause": -1}]}, "new, step 1: pause is -1; write a number of at least 0"),
        (
            {"methods": {"logout": [[{"say": 1}]]}},
            "logout, call 1, step 1: say is 1; write a text",
        ),
        ({"turn": []}, "there is no key 'turn'; did you mean turns?"),
        ({"turns": [{"where": "x"}]}, "turn 1: there is no key 'where'; did you mean when?"),
        ({"sessions": {"mode": []}}, "sessions: there is no key 'mode'; did you mean modes?"),
        ({"framing": "morse"}, 'framing is \'morse\'; write "lines" or "headers"'),
        ({"ignore": ["LOUD"]}, "ignore is ['LOUD']; write a list of \"eof\" and names of signals"),
        ("name = ", "Invalid value (at end of document); fix the text"),
        (
            "initialize = {since = 2020-01-01}",
            "Object of type date is not JSON serializable; write dates as texts",
        ),
    ],
)
def test_a_scenario_that_cannot_be_played_is_rejected_with_position_and_advice(
    table: Any, expected: str
) -> None:
    assert reason(table).startswith(expected)

"""What a person sees before they allow something."""

from typing import Any

from hypothesis import given, strategies as st
from msgspec import to_builtins

from quarterdeck.cli.terminal.permission_prompt import details, permission_prompt
from quarterdeck.runner.permissions.card import option_views

ALLOW = {"optionId": "one", "name": "Deny", "kind": "allow_once"}
ALWAYS = {"optionId": "two", "name": "Deny", "kind": "allow_always"}
REJECT = {"optionId": "three", "name": "Allow", "kind": "reject_once"}


def shown(call: dict[str, Any], room: int = 70) -> str:
    return "\n".join(line.text for line in permission_prompt(call, [ALLOW], room).lines)


def test_keys_are_named_by_kind_never_by_the_agents_words() -> None:
    prompt = permission_prompt({"title": "x"}, [REJECT, ALWAYS, ALLOW], 70)
    assert prompt.choices() == "y allow once, a allow always, n reject, d details"
    assert prompt.keys == {"y": "one", "a": "two", "n": "three"}


def test_only_what_is_offered_has_a_key() -> None:
    prompt = permission_prompt({}, [REJECT, {"optionId": "x", "kind": "allow_all"}, 3, None], 70)
    assert prompt.keys == {"n": "three"}
    assert prompt.unnamed == 3


def option(option_id: str, kind: str, label: str) -> dict[str, str]:
    return {"optionId": option_id, "kind": kind, "label": label}


def test_each_option_of_one_kind_has_a_key_and_its_own_words() -> None:
    options = [
        option("once", "allow_once", "Allow once: Yes"),
        option("edits", "allow_once", "Allow once: Yes, with edits\u202e"),
        option("later", "reject_once", "Reject: Not now"),
        option("never", "reject_once", "Reject: Never"),
        option("x", "allow_once", "Allow once: Third"),
    ]
    prompt = permission_prompt({}, options, 70)
    assert prompt.choices() == (
        "y allow once: Yes, n reject: Not now, 1 allow once: Yes, with edits<U+202E>,"
        " 2 reject: Never, 3 allow once: Third, d details"
    )
    assert prompt.keys == {"y": "once", "n": "later", "1": "edits", "2": "never", "3": "x"}
    assert prompt.allowing == {"y", "1", "3"}
    assert prompt.unnamed == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always", "odd"]),
            st.text("abc", min_size=1),
        ),
        max_size=20,
    )
)
def test_any_options_have_different_words_and_one_of_them_rejects(
    kinds: list[tuple[str, str]],
) -> None:
    given = [
        {"optionId": str(number), "kind": kind, "name": name}
        for number, (kind, name) in enumerate(kinds)
    ]
    options = [to_builtins(each) for each in option_views(given)]
    prompt = permission_prompt({}, options, 70)
    assert len(set(prompt.labels.values())) == len(prompt.labels)
    assert "n" in prompt.labels
    assert prompt.keys.keys() <= prompt.labels.keys()
    assert len(prompt.keys) + prompt.unnamed == len(options)
    kind_of = {each["optionId"]: each["kind"] for each in options}
    for key, option_id in prompt.keys.items():
        assert (key in prompt.allowing) == kind_of[option_id].startswith("allow")


def test_of_two_options_with_one_id_neither_has_a_key_and_it_can_be_rejected() -> None:
    twins = [option("a", "allow_once", "Allow once"), option("a", "reject_once", "Reject")]
    prompt = permission_prompt({}, twins, 70)
    assert prompt.keys == {}
    assert prompt.choices() == "n reject, d details"


def test_why_a_person_is_asked_is_shown() -> None:
    prompt = permission_prompt({}, [ALLOW], 70, because="No rule matches.\u202e")
    assert prompt.lines[-1].text == "  asked because: No rule matches.<U+202E>"


def test_the_command_is_shown_before_the_description_of_the_agent() -> None:
    text = shown({"title": "list files", "kind": "execute", "rawInput": {"command": "rm -rf /"}})
    assert text.splitlines() == [
        "The agent asks to run a command",
        "  command: rm -rf /",
        "  the agent says: list files",
    ]


def test_a_command_may_be_a_list_or_have_arguments() -> None:
    assert "command: git commit -m 'a b'" in shown(
        {"rawInput": {"command": ["git", "commit", "-m", "a b"]}}
    )
    assert "command: git log 'a b'" in shown(
        {"rawInput": {"command": "git", "args": ["log", "a b"]}}
    )


def test_other_input_is_shown_whole() -> None:
    text = shown({"kind": "execute", "rawInput": {"command": "ls", "env": {"LD_PRELOAD": "x"}}})
    assert "command: ls" in text
    assert "LD_PRELOAD" in text


def test_a_diff_is_shown_with_what_cannot_be_seen_spelled_out() -> None:
    part = {"type": "diff", "path": "a.py", "oldText": "x\n", "newText": "x\u202e\n"}
    text = shown({"kind": "edit", "content": [part]})
    assert "-x" in text
    assert "+x<U+202E>" in text


def test_a_call_without_details_is_marked() -> None:
    assert "the agent sent no details of this call" in shown({"title": "trust me"})


def test_a_long_call_shows_its_beginning_its_end_and_how_much_is_between() -> None:
    command = "\n".join(f"echo {number}" for number in range(500))
    prompt = permission_prompt({"kind": "execute", "rawInput": {"command": command}}, [ALLOW], 70)
    opening = [line.text for line in prompt.opening()]
    assert prompt.is_long
    assert len(opening) < 25
    assert "echo 0" in opening[1]
    assert "echo 499" in opening[-1]
    assert any("lines not shown; press d to see them" in line for line in opening)


def test_padding_does_not_hide_the_end_of_a_command() -> None:
    text = shown({"kind": "execute", "rawInput": {"command": "ls" + " " * 10_000 + "; rm -rf /"}})
    assert "ls <10000 blanks> ; rm -rf /" in text


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
CALLS = st.dictionaries(
    st.sampled_from(["title", "kind", "rawInput", "content", "locations", "x"]), ANYTHING
)


@given(CALLS, st.lists(ANYTHING, max_size=4))
def test_any_request_of_an_agent_can_be_shown(call: dict[str, Any], options: list[Any]) -> None:
    prompt = permission_prompt(call, options, 60)
    text = "".join(line.text for line in (*prompt.lines, *details(call, options, 60)))
    assert "\x1b" not in text
    assert "\r" not in text


def test_a_terminal_that_has_not_begun_is_not_shown() -> None:
    part = {"type": "terminal", "terminalId": "t1"}
    text = shown({"kind": "execute", "rawInput": {"command": "ls"}, "content": [part]})
    assert "t1" not in text
    assert "no details" in shown({"kind": "execute", "content": [part]})
    assert "more" in shown({"kind": "execute", "content": [{**part, "_meta": {"more": 1}}]})


def _read(call: dict[str, Any], **read: Any) -> list[str]:
    lines = permission_prompt(call, [ALLOW], 70, read=read).lines
    return [line.text.strip() for line in lines]


def test_a_command_that_the_request_cuts_is_shown_whole() -> None:
    """As kimi asks: the arguments came before the request, as text."""
    text = {"type": "text", "text": "Requesting approval to Running: touch a-long…"}
    call = {"title": "Bash", "content": [{"type": "content", "content": text}]}
    lines = _read(call, kind="execute", commands=["touch a-long-name"], paths=[])
    assert lines[:2] == ["The agent asks to run a command", "command: touch a-long-name"]


def test_a_request_without_details_shows_the_calls_that_it_is_about() -> None:
    """As OpenHands asks, once for all calls of its turn."""
    call = {"title": "Confirm Agent Actions", "kind": "other"}
    lines = _read(call, kind="other", commands=["make", "make test"], paths=["/shop/a.py"])
    assert lines[1:4] == ["file: /shop/a.py", "command: make", "command: make test"]
    assert lines[-1] == "the request has no details; these are of the open calls of its turn"


def test_what_the_request_says_itself_is_not_replaced() -> None:
    call = {"rawInput": {"command": "rm -r /"}, "locations": [{"path": "/b"}]}
    lines = _read(call, kind="read", commands=["true"], paths=["/a"])
    assert "command: rm -r /" in lines
    assert "file: /b" in lines
    assert not {"command: true", "file: /a"} & {*lines}

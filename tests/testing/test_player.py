"""The agent as a real child process: what it sends, in which order, and how it ends."""

import json
import os
import signal
from typing import Any

import pytest

from tests.testing.driving import Driver, Json, driving, texts, turn, updates, wait_until_gone

CANCELLED = {"stopReason": "cancelled"}
FAR = 3600  # a pause that a test never waits for


def cancel(agent: Driver, session_id: str = "sess-1") -> None:
    agent.notify("session/cancel", sessionId=session_id)


def played(*steps: Json) -> list[Json]:
    """Play steps in one turn, without pauses, and return the updates that came."""
    with driving(turn(*steps), pace=0) as agent:
        messages, answer = agent.play()
        assert answer["result"] == {"stopReason": "end_turn"}
        return updates(messages)


# The life of a session


def test_initialize_is_answered_with_defaults_under_the_scenarios_own_words() -> None:
    with driving({"name": "x", "initialize": {"_meta": {"a": 1}}}) as agent:
        result = agent.call("initialize", protocolVersion=1)["result"]
    assert result["protocolVersion"] == 1
    assert result["agentInfo"]["name"] == "x"
    assert result["agentCapabilities"]["loadSession"] is False
    assert result["_meta"] == {"a": 1}


def test_capabilities_are_taken_as_they_are() -> None:
    with driving({"capabilities": {"loadSession": True}}) as agent:
        result = agent.call("initialize", protocolVersion=1)["result"]
    assert result["agentCapabilities"] == {"loadSession": True}


def test_sessions_are_numbered_and_get_the_defaults() -> None:
    with driving({"sessions": {"modes": ["ask", "code"]}}) as agent:
        first = agent.call("session/new", cwd="/work", mcpServers=[])["result"]
        second = agent.call("session/new", cwd="/work", mcpServers=[])["result"]
    assert (first["sessionId"], second["sessionId"]) == ("sess-1", "sess-2")
    assert first["modes"]["currentModeId"] == "ask"
    assert [mode["id"] for mode in first["modes"]["availableModes"]] == ["ask", "code"]


def test_the_pattern_of_session_ids_can_be_given() -> None:
    with driving({"sessions": {"id": "alpha-{n}"}}) as agent:
        assert agent.open_session() == "alpha-1"


def test_hooks_play_before_and_after_the_answer_to_session_new() -> None:
    scenario = {"before_new": [{"say": "before"}], "new": [{"commands": ["test"]}]}
    with driving(scenario) as agent:
        messages, _answer = agent.read_until_answer(
            agent.request("session/new", cwd="/work", mcpServers=[])
        )
        after = agent.read()
    assert texts(messages) == ["before"]
    assert after["params"]["sessionId"] == "sess-1"
    assert after["params"]["update"]["availableCommands"][0]["name"] == "test"


def test_loading_replays_before_its_answer() -> None:
    with driving({"load": [{"user": "old question"}, {"say": "old answer"}]}) as agent:
        load = agent.request("session/load", sessionId="old", cwd="/work", mcpServers=[])
        messages, answer = agent.read_until_answer(load)
        assert agent.read_until_answer(agent.prompt("old"))[1]["result"]
    assert texts(messages) == ["old question", "old answer"]
    assert messages[0]["params"]["sessionId"] == "old"
    assert answer["result"] == {}


def test_an_agent_without_a_replay_cannot_load() -> None:
    with driving({}) as agent:
        answer = agent.call("session/load", sessionId="old", cwd="/work", mcpServers=[])
    assert answer["error"]["code"] == -32601


def test_turns_are_chosen_by_the_text_of_the_prompt_or_else_in_order() -> None:
    turns = [
        {"steps": [{"say": "one"}]},
        {"when": "weather", "steps": [{"say": "rain"}]},
        {"steps": [{"say": "two"}]},
    ]
    with driving({"turns": turns}) as agent:
        agent.open_session()
        prompts = ["a", "b", "the weather?", "c"]
        spoken = [texts(agent.read_until_answer(agent.prompt(text=each))[0]) for each in prompts]
    assert spoken == [["one"], ["two"], ["rain"], ["two"]]


def test_setting_a_mode_is_answered_and_told() -> None:
    with driving({"sessions": {"modes": ["ask", "code"]}}) as agent:
        agent.open_session()
        assert agent.call("session/set_mode", sessionId="sess-1", modeId="code")["result"] == {}
        assert agent.read()["params"]["update"]["currentModeId"] == "code"
        answer = agent.call("session/set_mode", sessionId="sess-1", modeId="fly")
    assert answer["error"]["code"] == -32602


def test_setting_an_option_returns_all_of_them() -> None:
    option = {"id": "model", "name": "Model", "type": "select", "currentValue": "a"}
    with driving({"sessions": {"configOptions": [option]}}) as agent:
        agent.open_session()
        params = {"sessionId": "sess-1", "configId": "model", "value": "b"}
        result = agent.call("session/set_config_option", **params)["result"]
    assert result["configOptions"][0]["currentValue"] == "b"


def test_any_method_can_be_scripted_call_by_call() -> None:
    methods = {"session/list": [[{"result": {"sessions": []}}], [{"fail": "busy", "code": 5}]]}
    with driving({"methods": methods}) as agent:
        answers = [agent.call("session/list") for _ in range(3)]
    assert answers[0]["result"] == {"sessions": []}
    assert [each["error"]["message"] for each in answers[1:]] == ["busy", "busy"]


# Reports


def test_a_message_is_cut_into_pieces_of_one_id() -> None:
    (first, second, third) = played({"say": "one two three", "pieces": 3, "pause": 0.1, "id": "m"})
    assert first["content"]["text"] + second["content"]["text"] + third["content"]["text"] == (
        "one two three"
    )
    assert {each["messageId"] for each in (first, second, third)} == {"m"}


def test_every_kind_of_report_is_an_update() -> None:
    kinds = [
        each["sessionUpdate"]
        for each in played(
            {"say": "a"},
            {"think": "b"},
            {"user": "c"},
            {"plan": ["[x] d", "e"]},
            {"tool": "t", "title": "T", "kind": "read", "locations": ["/work/f"], "input": 1},
            {"progress": "t", "text": "half"},
            {"finish": "t", "diff": {"path": "/work/f", "old": "1", "new": "2"}, "output": 2},
            {"commands": ["test"]},
            {"mode": "code"},
            {"usage": 5, "size": 10, "cost": 0.5},
            {"title": "T"},
            {"update": {"sessionUpdate": "mood", "mood": "good"}},
        )
    ]
    assert kinds == [
        "agent_message_chunk",
        "agent_thought_chunk",
        "user_message_chunk",
        "plan",
        "tool_call",
        "tool_call_update",
        "tool_call_update",
        "available_commands_update",
        "current_mode_update",
        "usage_update",
        "session_info_update",
        "mood",
    ]


def test_a_repeat_counts_its_rounds() -> None:
    spoken = played({"repeat": 3, "steps": [{"say": "{n}"}]})
    assert [each["content"]["text"] for each in spoken] == ["1", "2", "3"]


# Permission requests

ASKS = turn(
    {
        "ask": "edit-1",
        "title": "Edit",
        "diff": {"path": "/work/f", "old": "1", "new": "2"},
        "allowed": [{"say": "thank you"}],
        "rejected": [{"say": "a pity"}],
    },
    {"say": "bye"},
)


@pytest.mark.parametrize(
    ("option_id", "spoken"),
    [
        ("allow_once", ["thank you", "bye"]),
        ("allow_always", ["thank you", "bye"]),
        ("reject_once", ["a pity", "bye"]),
    ],
)
def test_the_answer_to_a_permission_request_decides_the_next_steps(
    option_id: str, spoken: list[str]
) -> None:
    with driving(ASKS) as agent:
        prompt = agent.prompt(agent.open_session())
        request = agent.read()
        agent.select_option(request, option_id)
        messages, answer = agent.read_until_answer(prompt)
    assert request["method"] == "session/request_permission"
    assert request["params"]["toolCall"]["content"][0]["type"] == "diff"
    assert texts(messages) == spoken
    assert answer["result"] == {"stopReason": "end_turn"}


def test_a_permission_answered_cancelled_ends_the_turn() -> None:
    with driving(ASKS) as agent:
        prompt = agent.prompt(agent.open_session())
        agent.answer(agent.read(), {"outcome": {"outcome": "cancelled"}})
        assert agent.read_until_answer(prompt) == (
            [],
            {"jsonrpc": "2.0", "id": prompt, "result": CANCELLED},
        )


def test_what_the_client_answers_can_be_said() -> None:
    steps = (
        {"request": "fs/read_text_file", "params": {"path": "/work/f"}},
        {"say": "it says: {last.content}"},
    )
    with driving(turn(*steps)) as agent:
        prompt = agent.prompt(agent.open_session())
        request = agent.read()
        agent.answer(request, {"content": "hello"})
        messages, _answer = agent.read_until_answer(prompt)
    assert request["params"] == {"sessionId": "sess-1", "path": "/work/f"}
    assert texts(messages) == ["it says: hello"]


def test_a_request_without_waiting_continues_at_once() -> None:
    with driving(turn({"request": "x", "nowait": True}, {"say": "on"})) as agent:
        messages, _answer = agent.play()
    assert [each["method"] for each in messages] == ["x", "session/update"]


# Cancelling

WAITS: dict[str, Json] = {
    "pausing": {"pause": FAR},
    "stalling": {"stall": True},
    "asking": {"ask": "t"},
    "requesting": {"request": "terminal/wait_for_exit"},
    "streaming slowly": {"say": "a b", "pieces": 2, "pause": FAR},
}


@pytest.mark.parametrize("waiting", WAITS)
def test_a_cancel_is_heard_while(waiting: str) -> None:
    with driving(turn({"say": "begun"}, WAITS[waiting], {"say": "not reached"})) as agent:
        prompt = agent.prompt(agent.open_session())
        agent.read()
        cancel(agent)
        messages, answer = agent.read_until_answer(prompt)
    assert "not reached" not in texts([each for each in messages if "id" not in each])
    assert answer["result"] == CANCELLED


def test_a_request_can_be_cancelled_by_its_id() -> None:
    with driving(turn({"say": "begun"}, {"stall": True})) as agent:
        prompt = agent.prompt(agent.open_session())
        agent.read()
        agent.notify("$/cancel_request", requestId=prompt)
        assert agent.read()["error"]["code"] == -32800


def test_a_deaf_stall_hears_no_cancel_but_the_agent_still_serves_others() -> None:
    with driving(turn({"say": "begun"}, {"stall": True, "deaf": True})) as agent:
        agent.prompt(agent.open_session())
        agent.read()
        cancel(agent)
        assert agent.open_session() == "sess-2"


def test_a_script_can_wait_for_a_cancel_and_answer_as_it_likes() -> None:
    steps = ({"say": "begun"}, {"wait_cancel": True}, {"say": "late"}, {"stop": "end_turn"})
    with driving(turn(*steps)) as agent:
        prompt = agent.prompt(agent.open_session())
        agent.read()
        cancel(agent)
        messages, answer = agent.read_until_answer(prompt)
    assert texts(messages) == ["late"]
    assert answer["result"] == {"stopReason": "end_turn"}


def test_a_cancel_ends_only_the_turn_of_its_session() -> None:
    turns = [{"when": "wait", "steps": [{"say": "begun"}, {"stall": True}]}, {"steps": []}]
    with driving({"turns": turns}) as agent:
        first, second = agent.open_session(), agent.open_session()
        waiting = agent.prompt(first, "wait")
        agent.read()
        assert agent.read_until_answer(agent.prompt(second))[1]["result"]
        cancel(agent, second)
        cancel(agent, first)
        assert agent.read() == {"jsonrpc": "2.0", "id": waiting, "result": CANCELLED}


def test_two_sessions_run_side_by_side() -> None:
    with driving(turn({"ask": "t", "allowed": [{"say": "{session}"}]})) as agent:
        sessions = [agent.open_session() for _ in range(2)]
        prompts = [agent.prompt(session_id) for session_id in sessions]
        permissions = [agent.read(), agent.read()]
        spoken = []
        for request, prompt in zip(reversed(permissions), reversed(prompts), strict=True):
            agent.select_option(request, "allow_once")
            spoken += texts(agent.read_until_answer(prompt)[0])
    assert spoken == ["sess-2", "sess-1"]


# Requests that make no sense


def test_a_second_prompt_in_a_busy_session_is_refused() -> None:
    with driving(turn({"say": "begun"}, {"stall": True})) as agent:
        first = agent.prompt(agent.open_session())
        agent.read()
        assert agent.read_until_answer(agent.prompt())[1]["error"]["code"] == -32600
        cancel(agent)
        assert agent.read()["id"] == first


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{nonsense\n", -32700),
        (b"[]\n", -32600),
        (b"{}\n", -32600),
        (b'{"id": 1, "method": "no/such"}\n', -32601),
        (b'{"id": 1, "method": "session/prompt", "params": {"sessionId": "?"}}\n', -32602),
    ],
)
def test_a_line_that_is_no_request_for_us_gets_an_error(line: bytes, code: int) -> None:
    with driving({}) as agent:
        agent.write(line)
        assert agent.read()["error"]["code"] == code


# How turns and processes end


def test_a_turn_can_end_by_any_stop_reason_with_its_usage() -> None:
    usage = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    with driving(turn({"stop": "max_tokens", "usage": usage}, {"say": "not reached"})) as agent:
        messages, answer = agent.play()
    assert messages == []
    assert answer["result"] == {"stopReason": "max_tokens", "usage": usage}


def test_a_turn_can_fail() -> None:
    with driving(turn({"fail": "boom", "code": -32000, "data": {"d": 1}})) as agent:
        _messages, answer = agent.play()
    assert answer["error"] == {"code": -32000, "message": "boom", "data": {"d": 1}}


def test_late_steps_come_after_the_answer_also_of_a_cancelled_turn() -> None:
    steps = ({"late": [{"title": "Late"}]}, {"say": "begun"}, {"stall": True})
    with driving(turn(*steps)) as agent:
        prompt = agent.prompt(agent.open_session())
        agent.read()
        cancel(agent)
        assert agent.read()["id"] == prompt
        assert agent.read()["params"]["update"]["title"] == "Late"


def test_a_crash_has_its_status() -> None:
    with driving(turn({"say": "bye"}, {"crash": 7})) as agent:
        agent.prompt(agent.open_session())
        assert texts([agent.read()]) == ["bye"]
        assert agent.read_line() == b""
        assert agent.status() == 7


def test_a_crash_can_be_a_signal() -> None:
    with driving(turn({"crash": "KILL"})) as agent:
        agent.prompt(agent.open_session())
        assert agent.status() == -signal.SIGKILL


def test_a_crash_can_cut_a_message() -> None:
    with driving(turn({"crash": 1, "partial": '{"jsonrpc":'})) as agent:
        agent.prompt(agent.open_session())
        assert agent.read_line() == b'{"jsonrpc":'


def test_the_end_of_its_input_ends_it() -> None:
    with driving(turn({"stall": True})) as agent:
        agent.prompt(agent.open_session())
        agent.close()
        assert agent.status() == 0


def test_an_agent_can_ignore_the_end_of_its_input_and_signals() -> None:
    with driving(turn({"pause": 0.2}, {"say": "still here"}, ignore=["eof", "TERM"])) as agent:
        agent.prompt(agent.open_session())
        agent.close()
        agent.process.terminate()
        assert texts([agent.read()]) == ["still here"]
        assert agent.process.poll() is None


def test_closed_output_is_the_end_of_all_messages_but_not_of_the_process() -> None:
    with driving(turn({"close_stdout": True}, {"say": "unheard"})) as agent:
        agent.prompt(agent.open_session())
        assert agent.read_line() == b""
        assert agent.process.poll() is None
        agent.close()
        assert agent.status() == 0


def test_closed_input_breaks_the_clients_pipe_but_updates_continue() -> None:
    with driving(turn({"close_stdin": True}, {"say": "I am not listening"})) as agent:
        messages, answer = agent.play()
        with pytest.raises(BrokenPipeError):
            agent.write(b"hello?\n")
    assert texts(messages) == ["I am not listening"]
    assert answer["result"]


# What is written as it is


def test_raw_messages_notifications_and_garbage_are_written_as_they_are() -> None:
    steps = (
        {"notify": "x/y", "params": {"a": 1}},
        {"raw": {"id": "{id}", "no": "message"}},
        {"garbage": "Loading..."},
        {"garbage": "ff00", "encoding": "hex"},
        {"garbage": "AAEC", "encoding": "base64", "newline": False},
        {"garbage": "!"},
    )
    with driving(turn(*steps)) as agent:
        prompt = agent.prompt(agent.open_session())
        assert agent.read() == {"jsonrpc": "2.0", "method": "x/y", "params": {"a": 1}}
        assert agent.read() == {"id": prompt, "no": "message"}
        assert [agent.read_line() for _ in range(3)] == [
            b"Loading...",
            b"\xff\x00",
            b"\x00\x01\x02!",
        ]


def test_a_flood_on_stderr_is_not_mixed_into_the_messages() -> None:
    with driving(turn({"stderr": "noise", "times": 1000}, {"say": "clear"})) as agent:
        messages, _answer = agent.play()
        agent.close()
        assert agent.process.stderr is not None
        assert agent.process.stderr.read() == b"noise\n" * 1000
    assert texts(messages) == ["clear"]


def test_half_of_a_surrogate_pair_is_written_with_a_backslash() -> None:
    half = "\ud83d"
    steps = ({"stderr": half}, {"garbage": half}, {"crash": 0, "partial": half})
    with driving(turn(*steps)) as agent:
        agent.prompt(agent.open_session())
        assert (agent.read_line(), agent.read_line()) == (b"\\ud83d", b"\\ud83d")
        assert agent.process.stderr is not None
        assert agent.process.stderr.read() == b"\\ud83d\n"


def test_an_answer_of_any_kind_fits_wherever_a_placeholder_may_stand() -> None:
    steps = (
        {"request": "x"},
        {"plan": ["{last}"]},
        {"commands": ["{last}"]},
        {"stderr": "{last}"},
        {"garbage": "{last}"},
        {"ask": "t", "options": ["{last}"]},
    )
    with driving(turn(*steps)) as agent:
        prompt = agent.prompt(agent.open_session())
        agent.answer(agent.read(), [1])
        assert agent.read()["params"]["update"]["entries"][0]["content"] == "[1]"
        assert agent.read()["params"]["update"]["availableCommands"][0]["name"] == "[1]"
        assert agent.read_line() == b"[1]"
        request = agent.read()
        assert request["params"]["options"][0]["optionId"] == "[1]"
        agent.answer(request, {"outcome": {"outcome": "selected", "optionId": [1]}})
        assert agent.read()["id"] == prompt


def test_a_complaint_without_a_reader_does_not_end_the_agent() -> None:
    with driving(turn({"stderr": "help"}, {"say": "on"})) as agent:
        assert agent.process.stderr is not None
        agent.process.stderr.close()
        messages, _answer = agent.play()
    assert texts(messages) == ["on"]


@pytest.mark.parametrize("seconds", [1e10, 1e300, 10**14])
def test_a_pause_of_centuries_is_one_that_can_be_cancelled(seconds: float) -> None:
    with driving(turn({"say": "begun"}, {"pause": seconds})) as agent:
        prompt = agent.prompt(agent.open_session())
        agent.read()
        cancel(agent)
        assert agent.read() == {"jsonrpc": "2.0", "id": prompt, "result": CANCELLED}


def test_a_client_that_reads_slowly_gets_everything_and_can_still_cancel() -> None:
    size, times = 10_000, 100  # far more than a pipe holds
    steps = ({"repeat": times, "steps": [{"say": "x" * size}]}, {"stall": True})
    with driving(turn(*steps)) as agent:
        prompt = agent.prompt(agent.open_session())
        other = agent.request("session/new", cwd="/work", mcpServers=[])
        cancel(agent)
        answers: list[tuple[int, Json]] = []
        while len(answers) < 2:
            message = agent.read()
            if "method" not in message:
                answers.append((message["id"], message["result"]))
    assert (prompt, CANCELLED) in answers
    assert other in [request_id for request_id, _result in answers]


def test_a_long_flood_arrives_whole_and_in_order() -> None:
    with driving(turn({"repeat": 5000, "steps": [{"say": "{n}"}]})) as agent:
        messages, _answer = agent.play()
    assert texts(messages) == [str(number) for number in range(1, 5001)]


def test_headers_are_written_if_the_scenario_says_so_and_always_read() -> None:
    with driving(turn({"say": "hällo"}, framing="headers")) as agent:
        calls: list[Any] = [
            ("session/new", {"cwd": "/work", "mcpServers": []}),
            ("session/prompt", {"sessionId": "sess-1", "prompt": []}),
        ]
        for number, (method, params) in enumerate(calls):
            call = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            payload = json.dumps(call).encode()
            agent.write(b"Content-Length: %d\r\n\r\n%s" % (len(payload), payload))
        assert agent.read_framed()["result"]["sessionId"] == "sess-1"
        assert texts([agent.read_framed()]) == ["hällo"]
        assert agent.read_framed()["id"] == 1


CALL = b'{"jsonrpc":"2.0","id":1,"method":"no/such"}'


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: %d\r\n\r\n",
        b"content-length:%d\n\n",
        b"Content-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\n\r\n",
        b"Content-Length: %d\nX-Other: 1\nContent-Type: text/plain\n\n",
    ],
)
def test_headers_may_come_in_any_order_with_either_end_of_line(headers: bytes) -> None:
    with driving({}) as agent:
        for byte in headers % len(CALL) + CALL:
            agent.write(bytes([byte]))
        assert agent.read()["error"]["code"] == -32601


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 1e22\r\n\r\n",
        b"Content-Length: 10000000000000000000000\r\n\r\n",
        b"Content-Type: text/plain\n\n",
        b"Content-Length: 12\n",  # and no empty line
    ],
)
def test_headers_without_a_length_that_can_be_are_refused_and_the_next_line_is_read(
    headers: bytes,
) -> None:
    with driving({}) as agent:
        agent.write(headers + CALL + b"\n")
        assert [agent.read()["error"]["code"] for _ in range(2)] == [-32700, -32601]


# Children


@pytest.mark.parametrize("own_session", [False, True])
def test_a_spawned_process_is_in_the_group_or_in_a_session_of_its_own(own_session: bool) -> None:
    with driving(turn({"spawn": FAR, "own_session": own_session}, {"say": "{last}"})) as agent:
        messages, _answer = agent.play()
        (pid,) = map(int, texts(messages))
        try:
            assert (os.getsid(pid) == pid) is own_session
        finally:
            os.kill(pid, signal.SIGKILL)
        assert wait_until_gone(pid)


def test_a_spawned_process_can_keep_the_output_open() -> None:
    steps = ({"spawn": FAR, "inherit": True}, {"say": "{last}"}, {"crash": 1})
    with driving(turn(*steps)) as agent:
        agent.prompt(agent.open_session())
        (pid,) = map(int, texts([agent.read()]))
        assert agent.status() == 1
        os.kill(pid, signal.SIGKILL)
        assert agent.read_line() == b""

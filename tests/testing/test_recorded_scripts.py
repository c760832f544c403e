from tests.testing.driving import driving, texts
from tests.testing.recorded_scripts import scenario_of_script

UPDATE = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a"}}
QUESTION = {"method": "session/request_permission", "params": {"toolCall": {"toolCallId": "c"}}}


def test_a_script_is_played_prompt_by_prompt() -> None:
    script = {
        "caps": {"loadSession": True},
        "session/close": [{"error": {"code": -32603, "message": "no", "data": {"d": 1}}}],
        "session/prompt": [
            [{"update": UPDATE}, {"waitCancel": 1}, {"sleep": 5}, {"result": {"stopReason": "x"}}],
            [{"request": {**QUESTION, "nowait": True}}, {"request": QUESTION}, {"result": {}}],
            [{"raw": {"id": 77, "method": "m"}}, {"exit": 3}],
        ],
    }
    with driving(scenario_of_script(script)) as agent:
        initialized = agent.call("initialize", protocolVersion=1)["result"]
        assert initialized == {
            "protocolVersion": 1,
            "agentCapabilities": {"loadSession": True},
            "authMethods": [],
        }
        assert agent.call("session/close")["error"]["data"] == {"d": 1}

        prompt = agent.prompt(agent.open_session())
        assert texts([agent.read()]) == ["a"]
        agent.notify("session/cancel", sessionId="sess-1")
        assert agent.read() == {"jsonrpc": "2.0", "id": prompt, "result": {"stopReason": "x"}}

        prompt = agent.prompt()
        agent.read()
        request = agent.read()
        agent.notify("session/cancel", sessionId="sess-1")
        agent.select_option(request, "ok")
        assert agent.read() == {"jsonrpc": "2.0", "id": prompt, "result": {}}

        agent.prompt()
        assert agent.read() == {"id": 77, "method": "m"}
        assert agent.status() == 3


def test_every_session_of_a_story_has_the_id_that_it_says() -> None:
    with driving(scenario_of_script({"session/new": [{"result": {"sessionId": "mine"}}]})) as agent:
        assert agent.open_session() == "mine"
        assert agent.read_until_answer(agent.prompt("mine"))[1]["result"]

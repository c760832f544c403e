"""Every method with every kind of wrong input: the code, the message and the sentence."""

from pathlib import Path
from typing import Any

import pytest

from quarterdeck.agent import AgentTurn, Mode, SessionStore
from tests.agent.support import conversing

INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND = -32602, -32600, -32601
TITLES = {INVALID_PARAMS: "Invalid params", INVALID_REQUEST: "Invalid Request"}

NEW = {"cwd": "/", "mcpServers": []}
STDIO = {"type": "stdio", "name": "files", "command": "mcp", "args": [], "env": []}
TEXT = [{"type": "text", "text": "hi"}]


class Everything:
    """An agent that offers all there is."""

    modes = (Mode("full", "Full"), Mode("safe", "Safe"))
    prompt_capabilities = {"image": True, "audio": True, "embeddedContext": True}  # noqa: RUF012
    auth_methods = ({"id": "key", "name": "Key"},)

    async def prompt(self, turn: AgentTurn) -> None:
        turn.say(turn.text)

    def config_options(self, _session: object) -> list[dict[str, Any]]:
        model = {"id": "model", "name": "Model", "type": "select", "currentValue": "a"}
        loud = {"id": "loud", "name": "Loud", "type": "boolean", "currentValue": False}
        return [{**model, "options": [{"value": "a", "name": "A"}]}, loud]

    async def authenticate(self, _method_id: str) -> None:
        pass

    async def logout(self) -> None:
        pass


def server(**changes: Any) -> dict[str, Any]:
    """Return the params of `session/new` with one MCP server that differs from a good one."""
    entry = {**STDIO, **changes}
    return {"cwd": "/", "mcpServers": [{k: v for k, v in entry.items() if v is not ...}]}


def block(**fields: Any) -> dict[str, Any]:
    return {"sessionId": "$session", "prompt": [fields]}


ENV = "mcpServers[0].env must be an array of objects with name and value"
UNKNOWN = "session not found: session-x; open it with session/load or session/resume"

REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("initialize", {}, "protocolVersion is required"),
    ("initialize", {"protocolVersion": None}, "protocolVersion is required"),
    ("initialize", {"protocolVersion": "1"}, "protocolVersion must be an integer"),
    ("initialize", {"protocolVersion": True}, "protocolVersion must be an integer"),
    ("initialize", {"protocolVersion": 1.5}, "protocolVersion must be an integer"),
    ("initialize", {"protocolVersion": -1}, "protocolVersion must be from 0 to 65535"),
    ("initialize", {"protocolVersion": 65536}, "protocolVersion must be from 0 to 65535"),
    ("initialize", {"protocolVersion": 1, "clientInfo": []}, "clientInfo must be an object"),
    (
        "initialize",
        {"protocolVersion": 1, "clientCapabilities": "all"},
        "clientCapabilities must be an object",
    ),
    ("authenticate", {}, "methodId is required"),
    ("authenticate", {"methodId": 1}, "methodId must be a string"),
    ("authenticate", {"methodId": "nose"}, "there is no auth method 'nose'"),
    ("session/new", {"mcpServers": []}, "cwd is required"),
    ("session/new", {**NEW, "cwd": "  "}, "cwd is required"),
    ("session/new", {**NEW, "cwd": 7}, "cwd must be a string"),
    ("session/new", {**NEW, "cwd": "src"}, "cwd must be an absolute path"),
    ("session/new", {**NEW, "cwd": "/no/such"}, "cwd is not a directory: '/no/such'"),
    ("session/new", {**NEW, "cwd": "/dev/null"}, "cwd is not a directory: '/dev/null'"),
    ("session/new", {**NEW, "cwd": "/a\0b"}, "cwd is not a directory: '/a\\x00b'"),
    ("session/new", {"cwd": "/"}, "mcpServers is required"),
    ("session/new", {"cwd": "/", "mcpServers": {}}, "mcpServers must be an array"),
    ("session/new", {"cwd": "/", "mcpServers": ["x"]}, "mcpServers[0] must be an object"),
    ("session/new", server(type="http"), "mcp server type http not supported"),
    ("session/new", server(type="sse"), "mcp server type sse not supported"),
    ("session/new", server(type="acp"), "mcp server type acp not supported"),
    ("session/new", server(type="carrier"), "unknown mcp server type carrier"),
    ("session/new", server(name=" "), "mcpServers[0].name is required"),
    ("session/new", server(name=3), "mcpServers[0].name is required"),
    ("session/new", server(command=...), "mcpServers[0].command is required"),
    ("session/new", server(args=...), "mcpServers[0].args is required"),
    ("session/new", server(args=[1]), "mcpServers[0].args must be an array of strings"),
    ("session/new", server(env=...), "mcpServers[0].env is required"),
    ("session/new", server(env={"A": "1"}), ENV),
    ("session/new", server(env=[{"name": "A"}]), ENV),
    ("session/new", server(env=[{"name": "", "value": "secret"}]), ENV),
    (
        "session/new",
        {"cwd": "/", "mcpServers": [STDIO, STDIO]},
        "two mcp servers are named 'files'",
    ),
    (
        "session/new",
        {**NEW, "additionalDirectories": "/"},
        "additionalDirectories must be an array",
    ),
    (
        "session/new",
        {**NEW, "additionalDirectories": ["x"]},
        "additionalDirectories[0] must be an absolute path",
    ),
    ("session/load", NEW, "sessionId is required"),
    ("session/load", {**NEW, "sessionId": 5}, "sessionId must be a string"),
    (
        "session/load",
        {**NEW, "sessionId": "../../etc"},
        "sessionId may have letters, digits, - and _ only",
    ),
    ("session/load", {**NEW, "sessionId": "session-x"}, "session not found: session-x"),
    ("session/load", {"sessionId": "session-x", "cwd": "/"}, "mcpServers is required"),
    ("session/load", {**NEW, "sessionId": "session-x", "cwd": "."}, "cwd must be an absolute path"),
    ("session/resume", {"cwd": "/"}, "sessionId is required"),
    ("session/resume", {"sessionId": "session-x", "cwd": "/"}, "session not found: session-x"),
    ("session/resume", {"sessionId": "session-x"}, "cwd is required"),
    ("session/list", {"cwd": "src"}, "cwd must be an absolute path"),
    ("session/list", {"cwd": 1}, "cwd must be a string"),
    ("session/list", {"cursor": "~~"}, "cursor was not returned by session/list"),
    ("session/list", {"cursor": 4}, "cursor must be a string"),
    ("session/delete", {}, "sessionId is required"),
    ("session/delete", {"sessionId": "a/b"}, "sessionId may have letters, digits, - and _ only"),
    ("session/close", {}, "sessionId is required"),
    ("session/close", {"sessionId": "session-x"}, UNKNOWN),
    ("session/prompt", {"prompt": TEXT}, "sessionId is required"),
    ("session/prompt", {"sessionId": "session-x", "prompt": TEXT}, UNKNOWN),
    ("session/prompt", {"sessionId": "$session"}, "prompt is required"),
    ("session/prompt", {"sessionId": "$session", "prompt": "hi"}, "prompt must be an array"),
    (
        "session/prompt",
        {"sessionId": "$session", "prompt": []},
        "prompt must have at least one content block",
    ),
    ("session/prompt", {"sessionId": "$session", "prompt": ["x"]}, "prompt[0] must be an object"),
    ("session/prompt", block(text="x"), "prompt[0].type is required"),
    ("session/prompt", block(type="text"), "prompt[0].text must be a string"),
    ("session/prompt", block(type="text", text=1), "prompt[0].text must be a string"),
    ("session/prompt", block(type="resource_link"), "prompt[0].uri must be a string"),
    (
        "session/prompt",
        block(type="image", mimeType="image/png"),
        "prompt[0].data must be a string",
    ),
    ("session/prompt", block(type="audio", data=[]), "prompt[0].data must be a string"),
    (
        "session/prompt",
        block(type="image", data="aGk=", mimeType=5),
        "prompt[0].mimeType must be a string",
    ),
    (
        "session/prompt",
        block(type="resource_link", uri="x:", name={}),
        "prompt[0].name must be a string",
    ),
    (
        "session/prompt",
        block(type="resource", resource={"uri": "x:", "text": "", "mimeType": []}),
        "prompt[0].resource.mimeType must be a string",
    ),
    ("session/prompt", block(type="resource"), "prompt[0].resource must be an object"),
    (
        "session/prompt",
        block(type="resource", resource={"text": "x"}),
        "prompt[0].resource.uri must be a string",
    ),
    (
        "session/prompt",
        block(type="resource", resource={"uri": "file:///x"}),
        "prompt[0].resource needs text or blob",
    ),
    ("session/prompt", block(type="smell"), "prompt[0]: unknown content type 'smell'"),
    ("session/set_mode", {"modeId": "safe"}, "sessionId is required"),
    ("session/set_mode", {"sessionId": "$session"}, "modeId is required"),
    ("session/set_mode", {"sessionId": "$session", "modeId": 1}, "modeId must be a string"),
    (
        "session/set_mode",
        {"sessionId": "$session", "modeId": "wild"},
        "unsupported mode 'wild'; there are full, safe",
    ),
    ("session/set_mode", {"sessionId": "session-x", "modeId": "safe"}, UNKNOWN),
    ("session/set_config_option", {"sessionId": "$session"}, "configId is required"),
    (
        "session/set_config_option",
        {"sessionId": "$session", "configId": "model"},
        "value is required",
    ),
    (
        "session/set_config_option",
        {"sessionId": "$session", "configId": "nose", "value": "a"},
        "there is no config option 'nose'; there are mode, model, loud",
    ),
    (
        "session/set_config_option",
        {"sessionId": "$session", "configId": "model", "value": "z"},
        "model cannot be 'z'; there are a",
    ),
    (
        "session/set_config_option",
        {"sessionId": "$session", "configId": "model", "value": True},
        "model must be a string",
    ),
    (
        "session/set_config_option",
        {"sessionId": "$session", "configId": "loud", "value": "yes"},
        "loud must be true or false",
    ),
    (
        "session/set_config_option",
        {"sessionId": "$session", "configId": "mode", "value": "wild"},
        "mode cannot be 'wild'; there are full, safe",
    ),
]


async def test_every_wrong_input_is_refused_with_a_sentence_and_nothing_else_breaks(
    tmp_path: Path,
) -> None:
    async with conversing(Everything(), store=SessionStore(tmp_path)) as client:
        session_id = await client.open_session()
        for method, params, sentence in REFUSALS:
            named = {k: session_id if v == "$session" else v for k, v in params.items()}
            error = await client.error(method, **named)
            assert error == {
                "code": INVALID_PARAMS,
                "message": "Invalid params",
                "data": sentence,
            }, (method, params)
        assert (await client.prompt(session_id))["result"] == {"stopReason": "end_turn"}
        assert client.texts() == ["go"]


@pytest.mark.parametrize(
    "method",
    [
        "authenticate",
        "logout",
        "session/new",
        "session/load",
        "session/resume",
        "session/list",
        "session/delete",
        "session/close",
        "session/prompt",
        "session/set_mode",
        "session/set_config_option",
    ],
)
async def test_nothing_is_done_before_initialize(method: str, tmp_path: Path) -> None:
    agent, store = Everything(), SessionStore(tmp_path)
    async with conversing(agent, store=store, initializes=False) as client:
        error = await client.error(method, **NEW, sessionId="s", prompt=TEXT)
    assert error == {
        "code": INVALID_REQUEST,
        "message": "Invalid Request",
        "data": f"call initialize before {method}",
    }


@pytest.mark.parametrize(
    "method",
    [
        "session/load",
        "session/resume",
        "session/list",
        "session/delete",
        "session/set_mode",
        "session/set_config_option",
        "logout",
        "session/cancel",
        "session/fork",
        "_example/thing",
    ],
)
async def test_what_an_agent_does_not_offer_is_not_found(method: str) -> None:
    async def bare(turn: AgentTurn) -> None:
        turn.say("hi")

    async with conversing(bare) as client:
        error = await client.error(method)
    assert error == {"code": METHOD_NOT_FOUND, "message": f"Method not found: {method}"}


async def test_content_that_was_not_offered_is_refused() -> None:
    async def bare(turn: AgentTurn) -> None:
        turn.say(turn.text)

    async with conversing(bare) as client:
        session_id = await client.open_session()
        for kind in ("image", "audio", "resource"):
            blocks = [{"type": kind, "data": "", "resource": {"uri": "x", "text": "y"}}]
            error = await client.error("session/prompt", sessionId=session_id, prompt=blocks)
            assert error["data"] == f"prompt[0]: this agent takes no {kind} content"


async def test_authenticate_is_accepted_by_an_agent_without_methods() -> None:
    async def bare(_turn: AgentTurn) -> None:
        pass

    async with conversing(bare) as client:
        assert await client.result("authenticate", methodId="anything") == {}


async def test_positional_params_are_refused() -> None:
    async def bare(_turn: AgentTurn) -> None:
        pass

    async with conversing(bare) as client:
        await client.send({"id": 99, "method": "session/new", "params": ["/"]})
        answer = await client.answered(99)
    assert answer["error"] == {
        "code": INVALID_PARAMS,
        "message": "Invalid params",
        "data": "params must be an object",
    }

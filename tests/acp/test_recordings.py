"""What real agents sent: one JSON object per line, {"method": …, "params" or "result": …}."""

import json
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.acp import (
    Method,
    NotificationMethod,
    Received,
    Unknown,
    methods,
    receive,
    schema,
    to_dict,
)
from tests.acp.conftest import ROOT
from tests.acp.instances import canonical

RECORDINGS = sorted((ROOT / "tests/vectors/acp").glob("*.jsonl"))
SENT: dict[str, Method[Any, Any] | NotificationMethod[Any]] = {
    **methods.CLIENT_METHODS,
    **methods.CLIENT_NOTES,
    **methods.PROTOCOL_NOTES,
}


def messages(recording: Path) -> list[Received[Any]]:
    read = []
    for line in recording.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        name = record["method"]
        if "result" in record:
            expected = methods.AGENT_METHODS[name].response
            read.append(receive(expected, json.dumps(record["result"]).encode()))
        elif name in SENT:
            call = SENT[name]
            expected = call.request if isinstance(call, Method) else call.params
            read.append(receive(expected, json.dumps(record["params"]).encode()))
        else:
            assert name.startswith("_"), f"{name} is neither ACP nor an extension"
    return read


def results(agent: str, method: str) -> list[dict[str, Any]]:
    lines = (ROOT / f"tests/vectors/acp/{agent}.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [each["result"] for each in records if each["method"] == method and "result" in each]


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_every_message_is_read_and_given_back_exactly(recording: Path) -> None:
    read = messages(recording)
    assert len(read) >= 10
    for message in read:
        original = json.loads(message.message)
        assert message.encode() == message.message
        assert canonical(message.to_dict()) == canonical(original)
        assert canonical(message.amended(message.value)) == canonical(original)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_no_update_of_a_real_agent_is_unknown(recording: Path) -> None:
    for message in messages(recording):
        if isinstance(message.value, schema.SessionNotification):
            assert not isinstance(message.value.update, Unknown)
            assert canonical(to_dict(message.value)) == canonical(message.to_dict())


def test_models_of_codex_are_read() -> None:
    (result,) = results("codex", "session/new")
    response = methods.SESSION_NEW.read_response(result)
    assert isinstance(response.models, schema.SessionModelState)
    assert len(response.models.available_models) > 1
    assert canonical(to_dict(response)) == canonical(result)


def test_a_capability_of_codex_that_the_schema_lacks_survives() -> None:
    result = results("codex", "initialize")[0]
    received = receive(schema.InitializeResponse, result)
    assert "subagents" in received.to_dict()["agentCapabilities"]["sessionCapabilities"]


def test_an_answer_of_openhands_without_config_options_is_read() -> None:
    assert {} in results("openhands", "session/set_config_option")
    assert methods.SESSION_SET_CONFIG_OPTION.read_response({}).config_options == ()


def test_the_recordings_are_small() -> None:
    assert sum(path.stat().st_size for path in RECORDINGS) < 150_000

"""What the agent sends is valid ACP, read without patience and without a field left over."""

from typing import Any

import msgspec
import pytest

from quarterdeck.acp import dec_hook, methods, to_dict
from tests.testing.driving import Json, driving


def strictly(expected: Any, plain: Json) -> Any:
    """Read plain JSON as a type; what the type does not know must not be there."""
    value = msgspec.convert(plain, expected, dec_hook=dec_hook)
    assert to_dict(value) == plain
    return value


def check(message: Json) -> None:
    method = message["method"]
    if "id" in message:
        strictly(methods.CLIENT_METHODS[method].request, message["params"])
    else:
        strictly(methods.CLIENT_NOTES[method].params, message["params"])


@pytest.mark.parametrize("option_id", ["allow_once", "reject_once"])
def test_every_message_of_the_demo_is_valid_acp(option_id: str) -> None:
    with driving("fix-a-bug", pace=0) as agent:
        initialized = agent.call("initialize", protocolVersion=1)["result"]
        created = agent.call("session/new", cwd="/work", mcpServers=[])["result"]
        prompt = agent.prompt()
        checked = 0
        while "method" in (message := agent.read()):
            check(message)
            checked += 1
            if "id" in message:
                agent.select_option(message, option_id)
    assert message["id"] == prompt
    assert checked > 15
    strictly(methods.INITIALIZE.response, initialized)
    strictly(methods.SESSION_NEW.response, created)
    strictly(methods.SESSION_PROMPT.response, message["result"])

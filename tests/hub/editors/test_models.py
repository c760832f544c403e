"""Models, for editors that know them and no options: `models` and `session/set_model`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quarterdeck.errors import RpcError
from tests.hub.api.kit import Json
from tests.hub.editors.kit import editor_at, hub_with

pytestmark = pytest.mark.anyio

MODELS: Json = {
    "currentModelId": "small",
    "availableModels": [{"modelId": "small", "name": "Small"}, {"modelId": "big", "name": "Big"}],
}
OPTION: Json = {
    "id": "llm",
    "name": "Model",
    "category": "model",
    "type": "select",
    "currentValue": "small",
    "options": [{"value": "small", "name": "Small"}, {"value": "big", "name": "Big"}],
}
SET: Json = {
    "session/set_config_option": [
        {"result": {"configOptions": [{**OPTION, "currentValue": "big"}]}}
    ]
}
MADE: dict[str, Json] = {
    "models": {"models": MODELS},
    "option": {"configOptions": [OPTION]},
    "both": {"models": MODELS, "configOptions": [OPTION]},
}


@pytest.mark.parametrize("agent", list(MADE))
async def test_an_editor_that_knows_only_models_chooses_one(agent: str, tmp_path: Path) -> None:
    made_by = {"session/new": [{"result": {"sessionId": "s1", **MADE[agent]}}]}
    setting: Any = {"session/set_model": [{"result": {}}]} if agent == "models" else SET
    async with (
        hub_with(tmp_path / "home", {"say": "hi"}, methods={**made_by, **setting}) as (hub, _),
        editor_at(hub) as editor,
    ):
        made = await editor.call("session/new", cwd=str(tmp_path), mcpServers=[])
        assert made["models"] == MODELS
        session_id = made["sessionId"]
        params = {"sessionId": session_id, "modelId": "big"}
        assert await editor.call("session/set_model", **params) == {}
        async with editor_at(hub) as again:
            loaded = await again.load(session_id, tmp_path)
            assert loaded["models"]["currentModelId"] == "big"
            option = next(each for each in loaded["configOptions"] if each["category"] == "model")
            assert option["currentValue"] == "big"
        async with editor_at(hub, scope="prompt") as other:
            await other.load(session_id, tmp_path)
            with pytest.raises(RpcError, match="needs approve"):
                await other.call("session/set_model", **params)


async def test_a_session_without_models_has_no_such_method(tmp_path: Path) -> None:
    async with hub_with(tmp_path / "home", {"say": "hi"}) as (hub, _), editor_at(hub) as editor:
        made = await editor.call("session/new", cwd=str(tmp_path), mcpServers=[])
        assert "models" not in made
        with pytest.raises(RpcError) as caught:
            await editor.call("session/set_model", sessionId=made["sessionId"], modelId="big")
        assert caught.value.code == -32601

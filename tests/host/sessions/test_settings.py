"""Modes, config options and models: one setting, whichever name an agent or a caller uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from quarterdeck.errors import AcpError
from quarterdeck.host import Host
from quarterdeck.host.sessions.settings import SessionSettings
from quarterdeck.protocol import (
    Normalized,
    SessionState,
    decode_event,
    initial_state,
    reduce,
    to_json,
)
from quarterdeck.protocol.config_options import is_made_of_models, mode_ids, modes_of
from quarterdeck.storage import MemoryStorage
from quarterdeck.views.acp import session_settings
from tests.host.test_host import CAN, Seen, agent, running

pytestmark = pytest.mark.anyio
Json = dict[str, Any]

MODES: Json = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "all", "name": "All"}],
}
OPTION: Json = {
    "id": "permissions",
    "name": "Mode",
    "category": "mode",
    "type": "select",
    "currentValue": "ask",
    "options": [{"value": "ask", "name": "Ask"}, {"value": "all", "name": "All"}],
}
EFFORT: Json = {
    "id": "effort",
    "name": "Effort",
    "category": "thought_level",
    "type": "select",
    "currentValue": "low",
    "options": [{"value": "low", "name": "Low"}, {"value": "high", "name": "High"}],
}
MODELS: Json = {
    "currentModelId": "small",
    "availableModels": [
        {"modelId": "small", "name": "Small"},
        {"modelId": "large", "name": "Large", "description": "slower"},
    ],
}


class Followed:
    """A session, its events and its state."""

    def __init__(self, host: Host, session_id: str) -> None:
        self.host, self.id, self.seen = host, session_id, Seen()
        host.subscribe(session_id, 0, self.seen)

    @property
    def state(self) -> SessionState:
        state = initial_state(self.id)
        for event in self.seen.events:
            state = reduce(state, event)
        return state

    @property
    def mode(self) -> tuple[Any, Any]:
        """The current mode, and the value of the mode option; None for what there is not."""
        plain = to_json(self.state)
        values = [each for each in plain["configOptions"] if each.get("category") == "mode"]
        modes = plain["modes"]
        return (
            None if modes is None else modes["currentModeId"],
            values[0]["currentValue"] if values else None,
        )


async def opened(host: Host, cwd: Path, **scenario: Any) -> Followed:
    spawned = await host.spawn_agent(agent(capabilities=CAN, **scenario))
    session = await host.create_session(spawned.agent_id, cwd=str(cwd))
    return Followed(host, session.session_id)


def settings(*names: str) -> Json:
    given = {"modes": MODES, "configOptions": [OPTION, EFFORT]}
    return {name: given[name] for name in names}


# ---- all ways to set, over all ways to offer -----------------------------------------------------


@pytest.mark.parametrize(
    "offered", [("modes",), ("configOptions",), ("modes", "configOptions")], ids="+".join
)
@pytest.mark.parametrize("way", ["mode", "option"])
async def test_modes_002_a_mode_is_set_by_either_name_again_and_again(
    offered: tuple[str, ...], way: str, tmp_path: Path
) -> None:
    async with running() as host:
        session = await opened(host, tmp_path, sessions=settings(*offered))
        for wanted in ("all", "ask", "all"):
            if way == "mode":
                await host.set_mode(session.id, wanted)
            else:
                name = "permissions" if "configOptions" in offered else "mode"
                options = await host.set_config_option(session.id, name, wanted)
                shown = [each for each in options if each.get("category") == "mode"]
                assert [each["currentValue"] for each in shown] == [wanted]
            expected = {"modes": wanted, "configOptions": wanted}
            mode, value = session.mode
            assert (mode if "modes" in offered else wanted) == expected["modes"]
            assert (value if "configOptions" in offered else wanted) == expected["configOptions"]
            answer = session_settings(session.state)["modes"]
            assert answer["currentModeId"] in mode_ids(answer), "MODES-001"
            assert answer["currentModeId"] == wanted


async def test_modes_001_a_session_with_modes_and_options_keeps_both(tmp_path: Path) -> None:
    async with running() as host:
        session = await opened(host, tmp_path, sessions=settings("modes", "configOptions"))
        init = await session.seen.first("session-config-init")
        assert init.payload == {"modes": MODES, "configOptions": [OPTION, EFFORT]}


@pytest.mark.parametrize(
    "offered", [("modes",), ("configOptions",), ("modes", "configOptions")], ids="+".join
)
async def test_modes_001_a_mode_that_the_agent_changes_is_one_of_the_available(
    offered: tuple[str, ...], tmp_path: Path
) -> None:
    async with running() as host:
        session = await opened(
            host, tmp_path, sessions=settings(*offered), turns=[{"steps": [{"mode": "all"}]}]
        )
        await host.prompt(session.id, "x")
        assert mode_ids(to_json(session.state)["modes"]) == ["ask", "all"]
        mode, value = session.mode
        assert (mode, value) == ("all", "all" if "configOptions" in offered else None)
        await host.set_mode(session.id, "ask")
        assert session_settings(session.state)["modes"]["currentModeId"] == "ask"


async def test_an_option_that_the_agent_changes_changes_its_mode(tmp_path: Path) -> None:
    changed = [{**OPTION, "currentValue": "all"}, EFFORT]
    update = {"sessionUpdate": "config_option_update", "configOptions": changed}
    async with running() as host:
        session = await opened(
            host,
            tmp_path,
            sessions=settings("modes", "configOptions"),
            turns=[{"steps": [{"update": update}]}],
        )
        await host.prompt(session.id, "x")
        assert session.mode == ("all", "all")


async def test_a_session_without_modes_says_so(tmp_path: Path) -> None:
    async with running() as host:
        session = await opened(host, tmp_path)
        for call in (
            lambda: host.set_mode(session.id, "ask"),
            lambda: host.set_config_option(session.id, "mode", "ask"),
        ):
            with pytest.raises(AcpError, match="has no"):
                await call()


# ---- models ------------------------------------------------------------------------------------


def with_models(answer: Json, **methods: Any) -> Json:
    return {"methods": {"session/new": [{"result": {"sessionId": "s", **answer}}], **methods}}


async def test_models_are_offered_as_an_option_and_set_by_their_method(tmp_path: Path) -> None:
    script = with_models(
        {"models": MODELS, "_meta": {"k": 1}}, **{"session/set_model": [{"result": {}}]}
    )
    async with running() as host:
        session = await opened(host, tmp_path, **script)
        init = await session.seen.first("session-config-init")
        assert init.extensions is not None
        assert init.extensions["models"] == MODELS
        assert init.extensions["_meta"] == {"k": 1}
        (option,) = to_json(session.state)["configOptions"]
        assert (option["id"], option["category"], option["currentValue"]) == (
            *("model", "model"),
            "small",
        )
        options = await host.set_config_option(session.id, "model", "large")
        assert [each["currentValue"] for each in options] == ["large"]
        assert [each["currentValue"] for each in to_json(session.state)["configOptions"]] == [
            "large"
        ]


async def test_the_offered_model_outlives_an_update_of_the_agents_own_options(
    tmp_path: Path,
) -> None:
    update = {"sessionUpdate": "config_option_update", "configOptions": [EFFORT]}
    script = with_models({"models": MODELS, "configOptions": [EFFORT]})
    async with running() as host:
        session = await opened(host, tmp_path, turns=[{"steps": [{"update": update}]}], **script)
        await host.prompt(session.id, "x")
        assert [each["id"] for each in to_json(session.state)["configOptions"]] == [
            *("effort", "model"),
        ]


async def test_an_agent_with_a_model_option_of_its_own_keeps_it(tmp_path: Path) -> None:
    own = {**EFFORT, "id": "llm", "category": "model"}
    async with running() as host:
        session = await opened(
            host, tmp_path, **with_models({"models": MODELS, "configOptions": [own]})
        )
        assert to_json(session.state)["configOptions"] == [own]
        init = await session.seen.first("session-config-init")
        assert init.extensions is not None
        assert init.extensions["models"] == MODELS


# ---- reopened ----------------------------------------------------------------------------------


async def test_settings_are_known_to_the_next_host_although_a_resume_does_not_repeat_them(
    tmp_path: Path,
) -> None:
    storage = MemoryStorage()
    script: Json = {"sessions": settings("modes", "configOptions"), "capabilities": CAN}
    script["methods"] = {
        "session/resume": [{"result": {}}],
        "session/set_mode": [{"result": {}}],
    }
    async with running(storage) as host:
        spawned = await host.spawn_agent(agent(**script))
        session_id = (await host.create_session(spawned.agent_id, cwd=str(tmp_path))).session_id
    async with running(storage) as host:
        spawned = await host.spawn_agent(agent(**script))
        await host.restore_sessions()
        await host.resume_session(spawned.agent_id, session_id, cwd=str(tmp_path))
        session = Followed(host, session_id)
        await host.set_mode(session_id, "all")
        assert session.mode == ("all", "all")


async def test_settings_outlive_a_reload_that_does_not_repeat_them(tmp_path: Path) -> None:
    async with running() as host:
        spawned = await host.spawn_agent(
            agent(
                capabilities=CAN,
                sessions=settings("modes", "configOptions"),
                load=[],
                methods={"session/load": [{"result": {}}]},
            )
        )
        made = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        session = Followed(host, made.session_id)
        await host.load_session(spawned.agent_id, session.id, cwd=str(tmp_path))
        assert session.mode == ("ask", "ask")


SAID: list[Json] = [
    {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "compact"}]},
    {"sessionUpdate": "session_info_update", "title": "Old work"},
    {"sessionUpdate": "usage_update", "used": 5, "size": 10},
    {"sessionUpdate": "config_option_update", "configOptions": [EFFORT]},
    {"sessionUpdate": "notice", "severity": "info", "title": "Resumed"},
    {"sessionUpdate": "_vendor_status", "busy": False},
]
HISTORY: list[Json] = [
    {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "old"}},
    {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "old"}},
    {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "old"}},
    {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "t"},
    {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"},
    {"sessionUpdate": "plan", "entries": []},
    {"sessionUpdate": "compaction_update", "compactionId": "1", "status": "completed"},
]


@pytest.mark.parametrize("is_known", [True, False])
async def test_what_an_agent_sends_before_it_answers_a_resume_is_kept_but_for_history(
    is_known: bool, tmp_path: Path
) -> None:
    mixed = [each for pair in zip(HISTORY, [*SAID, SAID[0]], strict=True) for each in pair]
    steps = [*({"update": each} for each in mixed), {"result": {}}]
    async with running() as host:
        host_seen = Seen()
        host.subscribe(None, 0, host_seen)
        spawned = await host.spawn_agent(agent(capabilities=CAN, methods={"session/resume": steps}))
        session_id = "old"
        if is_known:
            made = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
            session_id = made.session_id
        await host.resume_session(spawned.agent_id, session_id, cwd=str(tmp_path))
        session = Followed(host, session_id)
        state = to_json(session.state)
        assert state["availableCommands"] == [{"name": "compact"}]
        assert state["info"]["title"] == "Old work"
        assert state["usage"]["used"] == 5
        assert state["configOptions"] == [EFFORT]
        kept = [each for each in session.seen.events if each.type == "unrecognized-update"]
        assert [each.payload["sessionUpdate"] for each in kept] == ["notice", "_vendor_status"]
        assert state["messages"] == []
        assert state["toolCalls"] == {}
        assert session.seen.events[-1].payload == {"status": "active", "resumed": True}
        snapshot = host.get_session(session_id)
        assert snapshot is not None
        assert snapshot.title == "Old work"
        dropped = [
            each
            for each in host_seen.events
            if each.payload.get("code") == "session/resume-replayed-history"
        ]
        assert len(dropped) == len(HISTORY)


async def test_what_an_agent_sends_before_it_refuses_a_resume_changes_nothing(
    tmp_path: Path,
) -> None:
    steps: list[Json] = [{"update": SAID[1]}, {"fail": "no"}]
    async with running() as host:
        spawned = await host.spawn_agent(agent(capabilities=CAN, methods={"session/resume": steps}))
        made = await host.create_session(spawned.agent_id, cwd=str(tmp_path))
        session = Followed(host, made.session_id)
        with pytest.raises(Exception, match="no"):
            await host.resume_session(spawned.agent_id, session.id, cwd=str(tmp_path))
        assert to_json(session.state)["info"]["title"] is None


# ---- any order of any changes ------------------------------------------------------------------

IDS = st.sampled_from(["ask", "all", "plan", ""])
CHANGES = st.one_of(
    st.builds(
        lambda mode: Normalized("current-mode-update", {"currentModeId": mode}),
        IDS | st.none() | st.integers(),
    ),
    st.builds(
        lambda value, more: Normalized(
            "config-options-update", {"configOptions": [{**OPTION, "currentValue": value}, *more]}
        ),
        IDS,
        st.lists(st.sampled_from([EFFORT, None, 3, {"id": "x"}]), max_size=2),
    ),
    st.builds(
        lambda payload: Normalized("session-config-init", payload),
        st.fixed_dictionaries(
            {},
            optional={
                "modes": st.sampled_from([MODES, {}, {"availableModes": None}, "odd"]),
                "configOptions": st.sampled_from([[OPTION], [EFFORT], [], {}]),
            },
        ),
    ),
)


@given(st.lists(CHANGES, max_size=8))
def test_after_any_changes_the_settings_are_what_a_state_shows(changes: list[Normalized]) -> None:
    known, state, seq = SessionSettings(), initial_state("s"), 0
    for change in changes:
        for event in known.repaired(change):
            seq += 1
            fields = {"type": event.type, "sessionId": "s", "seq": seq, "ts": 1}
            state = reduce(state, decode_event({**fields, "payload": event.payload}))
        plain = to_json(state)
        if isinstance(plain["modes"], dict) and known.modes is not None:
            assert known.modes.get("currentModeId") == plain["modes"].get("currentModeId")
        if change.type == "current-mode-update" and modes_of(known.options) is not None:
            assert mode_ids(plain["modes"]), "a known list of modes is never lost"
        assert not any(
            isinstance(each, dict) and is_made_of_models(each) for each in known.options or ()
        )

"""The frames in docs/embed/context.md, sent to a hub and compared with what it sends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from quarterdeck.hub.context import connection, frames, subscription
from tests.hub.api.kit import ASK, CAN, options, paired, running, scripted
from tests.hub.context.test_connection import Phone

pytestmark = pytest.mark.anyio

ROOT: Final = Path(__file__).parents[3]
_FREE = frozenset({"message", "machineName", "capabilities", "sessions", "lastSeq"})
"""Fields whose values are of one connection only."""


class Step(NamedTuple):
    by: str
    frame: dict[str, Any]


def documented() -> list[Step]:
    text = (ROOT / "docs/embed/context.md").read_text(encoding="utf-8")
    section = text.partition("## Over the network\n")[2].partition("\n## ")[0]
    steps = []
    for part in section.split("```json\n")[1:]:
        before = section[: section.index(part)].rpartition("```json\n")[0]
        speakers = re.findall(r"^(Client|Hub):", before, re.MULTILINE)
        steps.append(Step(speakers[-1], json.loads(part.partition("```")[0])))
    assert section.count("Client:") + section.count("Hub:") == len(steps)
    return steps


def _filled(value: Any, known: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, known) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, known) for each in value]
    return known.get(value, value) if isinstance(value, str) else value


def _compare(wanted: dict[str, Any], got: dict[str, Any], known: dict[str, str]) -> None:
    """Compare all fields; learn the values of names in capitals that are new."""
    assert wanted["type"] != "acp_event" or wanted["event"].items() <= got["event"].items()
    if wanted["type"] == "acp_event":
        return
    assert wanted.keys() == got.keys()
    for key, value in wanted.items():
        if key in _FREE:
            assert type(got[key]) is type(value)
        elif isinstance(value, str) and value.isupper() and value not in frames_codes():
            known[value] = got[key]
        else:
            assert got[key] == value


def frames_codes() -> set[str]:
    return {step.frame["code"] for step in documented() if "code" in step.frame}


def test_every_frame_is_documented() -> None:
    steps = documented()
    by_client = {step.frame["type"] for step in steps if step.by == "Client"} - {"nonsense"}
    assert by_client == set(frames._KINDS)  # noqa: SLF001 - the union of all frames
    sources = [Path(str(each.__file__)) for each in (connection, frames, subscription)]
    written = {
        name
        for path in sources
        for name in re.findall(r'write_message\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert {step.frame["type"] for step in steps if step.by == "Hub"} == written | {"acp_event"}


async def test_the_documented_connection_is_what_a_hub_does(tmp_path: Path) -> None:
    agent = scripted(ASK, capabilities=CAN, load=[{"say": "before"}])
    async with running(options(tmp_path / "home", tester=agent)) as (hub, http):
        known = {"TOKEN": await paired(http, "approve"), "PROJECT": str(tmp_path)}
        url = f"ws://{str(http.http.base_url).partition('//')[2].strip('/')}/api/context"
        async with connect(url, proxy=None) as socket:
            client = Phone(socket)
            for step in documented():
                frame = _filled(step.frame, known)
                if step.by == "Client":
                    await socket.send(json.dumps(frame))
                    continue
                event = frame.get("event", {})
                # An error of another command, such as a queued message whose session is closed,
                # may come at any time.
                distinct = {key: frame[key] for key in ("code", "sessionId") if key in frame}
                got = await client.hear(
                    event.get("type", frame["type"]),
                    **(distinct if frame["type"] == "error" else {}),
                )
                _compare(frame, got, known)
                if event.get("type") == "approval:requested":
                    known["REQUEST"] = got["event"]["requestId"]
                    known["CALL"] = got["event"]["toolCallId"]
            with pytest.raises(ConnectionClosed) as caught:
                await client.hear("nothing")
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 4002
        assert hub.runner.find_session(known["SESSION"]) is not None

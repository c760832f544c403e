"""Reading a session for commands."""

from __future__ import annotations

from typing import Any

import pytest

from quarterdeck.cli.sessions import stored_events
from quarterdeck.jsontext import decode_json

pytestmark = pytest.mark.anyio


class Pages:
    async def read(self, _method: str, _path: str) -> bytes:
        return b'{"events":[{"seq":1,"text":"\\ud83d"}],"nextSeq":1,"lastSeq":1}'


async def test_half_a_surrogate_pair_in_an_event_can_be_read() -> None:
    api: Any = Pages()
    events = [decode_json(data) async for data in stored_events(api, "s")]
    assert events == [{"seq": 1, "text": "\ud83d"}]

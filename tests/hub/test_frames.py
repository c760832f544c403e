"""A frame that a WebSocket rejects gets a sentence, never the text of the validator."""

from __future__ import annotations

import re

import pytest

from quarterdeck.errors import AcpError
from quarterdeck.hub.context.frames import read_message
from quarterdeck.hub.streams.envelope import read_frame

KINDS = "auth, ping, subscribe, unsubscribe, command, start_session, terminate_session"
VALIDATOR = re.compile(r"\$|`|Expected|got |Object ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        (b"\xff", "not JSON"),
        ("3", f'it must be an object with a "type", one of {KINDS}'),
        ("{}", f'"type" is missing; use one of {KINDS}'),
        ('{"type": "sing"}', f'"type" cannot be "sing"; use one of {KINDS}'),
        ('{"type": 3}', f'"type" cannot be 3; use one of {KINDS}'),
        ('{"type": "auth"}', '"token" is missing'),
        ('{"type": "auth", "token": 3}', '"token" must be a string, not a whole number'),
        ('{"type": "subscribe", "fromSeq": "x"}', '"fromSeq" must be a whole number, not a string'),
        ('{"type": "subscribe", "sessionIds": [1]}', 'item 1 of "sessionIds" must be a string'),
        (
            '{"type": "command", "sessionId": "s", "command": {"command": "sing"}}',
            '"command.command" cannot be',
        ),
        ('{"type": "auth\\ud83d"}', "half of a surrogate pair"),
        ('{"type": "command", "sessionId": "s", "command": []}', '"command" must be an object'),
    ],
)
def test_a_context_frame_is_rejected_with_a_sentence(text: str | bytes, words: str) -> None:
    with pytest.raises(AcpError) as rejected:
        read_message(text)
    assert words in rejected.value.message
    assert not VALIDATOR.search(rejected.value.message)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "it must be an object, not a list"),
        ('{"subscribe": {}}', '"subscription" is missing in "subscribe"'),
        ('{"subscribe": 3}', '"subscribe" must be an object, not a whole number'),
        ('{"subscribe": {"\\ud83d": 1}}', "this frame cannot be understood"),
        ('{"ref": 3}', '"ref" must be a string, not a whole number'),
        ('{"request": {"id": "1", "method": 3}}', '"request.method" must be a string'),
    ],
)
def test_an_envelope_is_rejected_with_a_sentence(text: str, words: str) -> None:
    with pytest.raises(AcpError) as rejected:
        read_frame(text)
    assert words in rejected.value.message
    assert not VALIDATOR.search(rejected.value.message)

"""The hub's log: a line is a line, and no token is in it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from quarterdeck.hub.auth.tokens import make_token
from quarterdeck.hub.json_logging import JsonLines


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("quarterdeck.test_json_logging")
    logger.addHandler(handler)
    logger.setLevel("INFO")
    yield stream
    logger.removeHandler(handler)


def test_a_record_is_one_line_whatever_it_contains(written: io.StringIO) -> None:
    logger = logging.getLogger("quarterdeck.test_json_logging")
    logger.warning("agent said", extra={"text": 'x\n{"level": "error"}\r\u2028\x1b[31m'})
    (line,) = written.getvalue().splitlines()
    record = json.loads(line)
    assert record["level"] == "warning"
    assert record["message"] == "agent said"
    assert record["text"].startswith("x\n")
    assert line.isascii()
    assert line.isprintable()


def test_tokens_are_removed_from_messages_fields_and_tracebacks(written: io.StringIO) -> None:
    token = make_token()
    logger = logging.getLogger("quarterdeck.test_json_logging")
    try:
        int(f"Authorization: Bearer {token}")
    except ValueError:
        logger.exception("failed with %s", token, extra={"header": token})
    assert token not in written.getvalue()
    assert "[token]" in json.loads(written.getvalue())["exception"]

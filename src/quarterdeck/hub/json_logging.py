"""The hub's own log: one JSON object per line.

Text of clients and agents is escaped as JSON, so it cannot forge a second line. Tokens are replaced
wherever they appear.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import IO, Any, Final

from typing_extensions import override

from quarterdeck.hub.auth.tokens import redacted

_STANDARD: Final = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message"}
)


class JsonLines(logging.Formatter):
    """Formats a record as an object: time, level, logger, message, and its `extra` fields."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        facts |= {name: each for name, each in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return redacted(json.dumps(facts, default=str, ensure_ascii=True))


def log_to(stream: IO[str] | None = None, *, level: str = "info") -> None:
    """Write the log of this process to a stream; default: standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())

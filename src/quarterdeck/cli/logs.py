"""What is logged, on standard error: one line with its facts, and the traceback if there is one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import override  # in `typing` from Python 3.12 on
else:

    def override(method: object) -> object:
        return method


_HIDDEN: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "text"}
"""What every record has, and what a client sent: that may be a prompt."""


def log_to_stderr() -> None:
    """Show warnings and errors, unless somebody else has seen to that."""
    handler = logging.StreamHandler()
    handler.setFormatter(_WithFacts("quarterdeck: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class _WithFacts(logging.Formatter):
    @override
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        known = vars(record).items()
        facts = [f"{name}: {value}" for name, value in known if name not in _HIDDEN]
        said = super().formatMessage(record)
        return f"{said} ({', '.join(facts)})" if facts else said

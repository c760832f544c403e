"""Logging of the command: JSON lines for programs, one-line sentences for people.

Prompts, file contents and the environment are never logged; tokens and pairing codes are removed
from every line, whichever library wrote it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final, TextIO

from typing_extensions import override

from quarterdeck.hub.auth.tokens import redacted
from quarterdeck.hub.json_logging import JsonLines
from quarterdeck.views.text import plain

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class SentenceFormatter(logging.Formatter):
    """One line per record, for a terminal."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        reason = "".join(f" {name}={value}" for name, value in _fields(record).items())
        return redacted(plain(f"quarterdeck: {record.getMessage()}{reason}"))


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Return what was given as `extra`."""
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD}


@contextmanager
def hub_logging(file: Path | None) -> Iterator[None]:
    """Write warnings to stderr, and everything from info on to a file if one is named."""
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    handlers: list[logging.Handler] = [_stderr()]
    stream: TextIO | None = None
    if file is not None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        stream = os.fdopen(os.open(file, flags, 0o600), "a", encoding="utf-8", errors="replace")
        handlers.append(_handler(logging.StreamHandler(stream), JsonLines(), logging.INFO))
    root.handlers, level = handlers, min(handler.level for handler in handlers)
    root.setLevel(level)
    try:
        yield
    finally:
        root.handlers = before[1]
        root.setLevel(before[0])
        if stream is not None:
            stream.close()


MOST_LOG_BYTES: Final = 4 << 20
"""Of the runner's log; then a new file is begun, and one old file is kept."""


class _PrivateLog(RotatingFileHandler):
    @override
    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.fdopen(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8")


@contextmanager
def runner_logging(file: Path, *, is_detached: bool) -> Iterator[None]:
    """Write everything from info on to a bounded file, and warnings to stderr if it is read."""
    kept = _PrivateLog(file, maxBytes=MOST_LOG_BYTES, backupCount=1)
    handlers = [_handler(kept, JsonLines(), logging.INFO)]
    if not is_detached:
        handlers.append(_stderr())
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    root.handlers, level = handlers, logging.INFO
    root.setLevel(level)
    try:
        yield
    except BaseException:
        logging.getLogger(__name__).exception("the runner has failed")
        raise
    finally:
        root.setLevel(before[0])
        root.handlers = before[1]
        kept.close()


def _stderr() -> logging.Handler:
    formatter = SentenceFormatter() if sys.stderr.isatty() else JsonLines()
    return _handler(logging.StreamHandler(sys.stderr), formatter, logging.WARNING)


def _handler(handler: logging.Handler, formatter: logging.Formatter, level: int) -> logging.Handler:
    handler.setFormatter(formatter)
    handler.setLevel(level)
    return handler


_HIDDEN: Final = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "text"}
"""Attributes of every record, and the text that a client sent: it may be a prompt."""


def log_to_stderr() -> None:
    """Print warnings and errors, unless logging is configured already."""
    handler = logging.StreamHandler()
    handler.setFormatter(_FieldsFormatter("quarterdeck: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class _FieldsFormatter(logging.Formatter):
    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        known = vars(record).items()
        facts = [f"{name}: {value}" for name, value in known if name not in _HIDDEN]
        message = super().formatMessage(record)
        return f"{message} ({', '.join(facts)})" if facts else message

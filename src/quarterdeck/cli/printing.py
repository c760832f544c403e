"""Answers for programs."""

from __future__ import annotations

import sys
from typing import Any

from quarterdeck.jsontext import encode_json


def print_json(answer: Any) -> None:
    """Print one object on one line."""
    sys.stdout.write(encode_json(answer).decode() + "\n")
    sys.stdout.flush()

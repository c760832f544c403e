"""What the outcome of a permission request says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def chosen_option(outcome: Mapping[str, Any]) -> str:
    """Return the id of the option that was chosen; empty if none was."""
    chosen = outcome.get("optionId") if outcome.get("outcome") == "selected" else None
    return chosen if isinstance(chosen, str) else ""


def reason_of(outcome: Mapping[str, Any]) -> str:
    """Return why a request was rejected; empty if no reason was given."""
    meta = outcome.get("_meta")
    ours = meta.get("quarterdeck") if isinstance(meta, Mapping) else None
    reason = ours.get("reason") if isinstance(ours, Mapping) else None
    return reason if isinstance(reason, str) else ""

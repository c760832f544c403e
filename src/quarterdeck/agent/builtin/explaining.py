"""What another program said went wrong, in words for the model: its error, and its details."""

from __future__ import annotations

from typing import Any

from quarterdeck.errors import RpcError

_NAMES = ("Internal error", "Invalid params", "Invalid request")  # of codes: they say nothing
_CHARACTERS = 1000  # of the details; a traceback would push the task out of the model's window


def explained(error: RpcError) -> str:
    """Return the message of a JSON-RPC error and what its `data` adds to it."""
    details = _details(error.data)[:_CHARACTERS]
    if not details or details in error.message:
        return error.message
    return details if error.message in _NAMES else f"{error.message}: {details}"


def _details(data: Any) -> str:
    match data:
        case str():
            return data.strip()
        case {"details": str(details)} | {"message": str(details)} | {"error": str(details)}:
            return details.strip()
        case {"details": inner} | {"error": inner}:
            return _details(inner)
        case _:
            return ""

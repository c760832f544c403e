"""The parameters of calls, by their types."""

from __future__ import annotations

from typing import Any

import msgspec

from quarterdeck.errors import RequestRejected
from quarterdeck.runner.link.messages import method_shape, typed


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of `read_log`."""

    log: int | None
    after: int
    limit: int


def convert_params(params: Any, kind: type[Any]) -> Any:
    """Return parameters as a type.

    Raises:
        RequestRejected: if they are not of this type.
    """
    try:
        return typed(params, kind)
    except msgspec.ValidationError as error:
        raise RequestRejected("invalid", f"the hub sent an invalid command: {error}") from error


def call_arguments(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by their types; those of a newer hub are left out.

    Raises:
        RequestRejected: if they are not of these types, or some are missing.
    """
    shape = method_shape(method).parameters
    missing = method_shape(method).required - params.keys()
    if missing:
        names = ", ".join(sorted(missing))
        raise RequestRejected("invalid", f"the hub sent an invalid command: no {names}")
    return {
        name: convert_params(value, shape[name]) for name, value in params.items() if name in shape
    }

"""The name under which the permission inbox imports `iso_seconds`."""

from __future__ import annotations

from quarterdeck.protocol.timestamps import iso_seconds as written

__all__ = ["written"]

"""`override`, which `typing` has from Python 3.12 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method: object) -> object:
        return method


__all__ = ["override"]

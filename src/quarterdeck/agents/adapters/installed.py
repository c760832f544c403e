"""The adapters of this installation: those of this package, and those of others.

A package offers an adapter by an entry point of the group `quarterdeck.adapters`. It names a
function that takes the environment and returns a `ForeignAdapter`:

    [project.entry-points."quarterdeck.adapters"]
    mine = "my_package:MyAdapter"

One that cannot be loaded is reported and left out: it must not keep a runner from starting.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from quarterdeck.views.context import ForeignAdapter
from quarterdeck.wire import foreign_errors

logger = logging.getLogger(__name__)

GROUP: Final = "quarterdeck.adapters"


def installed_adapters(environ: Mapping[str, str]) -> dict[str, ForeignAdapter]:
    """Return the adapters by the names of their agents, in the order of these names."""
    found: dict[str, ForeignAdapter] = {}
    for entry in entry_points(group=GROUP):
        try:
            adapter = entry.load()(environ)
            if not isinstance(adapter, ForeignAdapter):
                logger.warning("this is not an adapter", extra={"adapter": entry.value})
                continue
            found[adapter.name] = adapter
        except foreign_errors():
            logger.exception("an adapter cannot be loaded", extra={"adapter": entry.value})
    return dict(sorted(found.items()))

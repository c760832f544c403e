"""The local machine: files beneath roots, terminals, processes that end with their owner,
confinement and sandboxes.

The host serves agents with it; the built-in agent works with it.
"""

from quarterdeck.machine.confinement import (
    UNCONFINED,
    ConfinedStart,
    Confinement,
    ConfinementStatus,
    ConfineMode,
    SandboxLimits,
    SandboxMode,
    WorkspaceSandbox,
    landlock_abi,
)
from quarterdeck.machine.files import DefaultFsHandler
from quarterdeck.machine.guard_program import living_descendants, send_signal
from quarterdeck.machine.hidden import HIDDEN_VARIABLE, NOTHING_HIDDEN, HiddenFolders
from quarterdeck.machine.processes import guarded_command, guarded_env, kill_tree
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
    "HIDDEN_VARIABLE",
    "NOTHING_HIDDEN",
    "UNCONFINED",
    "ConfineMode",
    "ConfinedStart",
    "Confinement",
    "ConfinementStatus",
    "DefaultFsHandler",
    "DefaultTerminalHandler",
    "HiddenFolders",
    "Locate",
    "LocatedFile",
    "SandboxFolder",
    "SandboxLimits",
    "SandboxMode",
    "WorkspaceSandbox",
    "guarded_command",
    "guarded_env",
    "kill_tree",
    "landlock_abi",
    "living_descendants",
    "locate_by_openat2",
    "open_folder",
    "outside_roots",
    "resolve_roots",
    "sandboxed_command",
    "send_signal",
]

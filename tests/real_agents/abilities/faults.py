"""Why an agent lacks an ability: its own doing, as its recording shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NEVER_ASKS: Final = "it has no permission requests and does what the model wants"
_QUEUES: Final = (
    "it answers the cancelled prompt with an error, stays busy, and only queues the next prompt"
)
_FORGETS: Final = (
    "it cannot load the session in a new process: it finds no session file of that name"
)
_LEFT_RUNNING: Final = "it ends the turn and not the process of its command"
_STEPS: Final = "it answers `end_turn` after the step that was running"

FAULTS: Final[Mapping[str, Mapping[str, str]]] = {
    "cline": {
        "edit with diff": "it reports a change as the text of a patch, without the diff of ACP",
    },
    "codex-zed": {
        "edit with diff": "it edits in a sandbox of its own and has none on this machine: it wants"
        " bubblewrap",
    },
    "dcode": {
        "cancel running": "it waits for the command, and ignores that the turn was cancelled",
    },
    "droid": {
        "output shown": "it opens the terminals of a later session in the name of the first one"
        " of its process, whose log then has the output",
    },
    "fast-agent": {
        "edit with diff": "it has no tool to edit, only one that writes whole files",
        "cancel running": _LEFT_RUNNING,
    },
    "gemini": {
        "output shown": "it reports the end of a command without its output",
        "agent killed": _FORGETS,
        "runner killed": _FORGETS,
    },
    "goose": {
        "cancel running": "it leaves the terminal running that it opened for the command",
    },
    "grok": {"cancel running": _LEFT_RUNNING},
    "hermes": {"cancel pending": _QUEUES, "cancel running": _QUEUES},
    "openhands": {
        "edit with diff": "it reports a change as the text of its tool call, without a diff",
        "cancel pending": _STEPS,
        "cancel streaming": _STEPS,
        "cancel running": _STEPS,
    },
    "pi": {
        "write allowed": _NEVER_ASKS,
        "write rejected": _NEVER_ASKS,
        "shell allowed": _NEVER_ASKS,
        "shell rejected": _NEVER_ASKS,
        "cancel pending": _NEVER_ASKS,
    },
}
"""By the name of the agent and the ability."""

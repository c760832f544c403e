"""The `quarterdeck` command: which verbs there are, and what Ctrl-C does while one is imported.

What becomes of a command line is in `command`. Every import up here is a moment in which Ctrl-C
still gives a traceback.
"""

import signal
import sys

VERBS: dict[str, tuple[str, str]] = {
    "up": ("quarterdeck.cli.up", "start the hub: agents, the log, every surface"),
    "demo": ("quarterdeck.cli.demo", "try it with an offline agent: no key, no network"),
    "run": ("quarterdeck.cli.run", "give an agent a prompt and watch it work"),
    "agents": ("quarterdeck.cli.agents", "list agents: known, installed, running"),
    "sessions": ("quarterdeck.cli.sessions", "list sessions: which need you, run, are done"),
    "show": ("quarterdeck.cli.show", "show a session as the log has it"),
    "tail": ("quarterdeck.cli.tail", "watch sessions as they go on"),
    "export": ("quarterdeck.cli.export", "write a session to a file"),
    "devices": ("quarterdeck.cli.devices", "list, pair and revoke devices"),
    "acp": ("quarterdeck.cli.acp", "be an agent: for an editor on stdio, or on HTTP"),
    "proxy": ("quarterdeck.cli.proxy", "be an editor's agent that works in the hub"),
    "doctor": ("quarterdeck.cli.doctor", "look for what could be wrong"),
    "completion": ("quarterdeck.cli.completion", "print a script for bash, zsh or fish"),
}
"""For each verb a module with `run(arguments: list[str]) -> int`, and its line in the help."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit status.

    Ctrl-C is only noted until everything is imported: in the middle of that a KeyboardInterrupt is
    a traceback, and in a module written in C it has been a crash.
    """
    pressed: list[int] = []
    # Whoever has another handler, or ignores the signal (`nohup`, `&`), has a reason.
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def release() -> None:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def act() -> None:
        release()
        if pressed:
            raise KeyboardInterrupt

    if is_ours:
        signal.signal(signal.SIGINT, lambda number, _frame: pressed.append(number))
    try:
        from quarterdeck.cli import command  # noqa: PLC0415  # not before Ctrl-C is held

        return command.run(sys.argv[1:] if arguments is None else arguments, VERBS, act)
    finally:
        release()

"""The `quarterdeck` command: its subcommands, and Ctrl-C while one is imported.

`dispatch` runs a command line. Keep imports here to a minimum: until `main` has replaced the
handler, Ctrl-C is a traceback.
"""

import signal
import sys

COMMANDS: dict[str, str] = {
    "up": "start the hub",
    "demo": "try Quarterdeck with an offline agent; no API key",
    "run": "send a prompt to an agent and follow its turn",
    "agents": "list agents: known, installed, running",
    "sessions": "list sessions; those that need you come first",
    "show": "print a session from its log",
    "tail": "follow sessions live",
    "fork": "continue a session in a second one",
    "rename": "give a session another title",
    "archive": "leave a session out of lists",
    "export": "write a session to a file",
    "policy": "explain what the rules decide about a command",
    "devices": "list, pair and revoke devices",
    "acp": "serve an agent over ACP, on stdio or HTTP",
    "proxy": "connect an editor to the hub",
    "check": "check the stored data for damage",
    "repair": "recover what is intact in damaged data",
    "backup": "write a backup, even while the hub runs",
    "restore": "restore a backup",
    "compact": "return unused space in the log to the disk",
    "doctor": "check the installation for problems",
    "completion": "print a completion script for bash, zsh or fish",
}
"""Each command with its line in the help; its module is `commands/<name>.py`."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit status.

    Ctrl-C is only recorded until everything is imported: a KeyboardInterrupt in the middle of an
    import is a traceback, and inside an extension module it has been a crash.
    """
    pressed: list[int] = []
    # Another handler, or an ignored signal (`nohup`, `&`), is there for a reason: leave it.
    is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def release() -> None:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def on_ready() -> None:
        release()
        if pressed:
            raise KeyboardInterrupt

    if is_ours:
        signal.signal(signal.SIGINT, lambda number, _frame: pressed.append(number))
    try:
        from quarterdeck.cli import dispatch  # noqa: PLC0415  # not before Ctrl-C is held

        return dispatch.run(sys.argv[1:] if arguments is None else arguments, COMMANDS, on_ready)
    finally:
        release()

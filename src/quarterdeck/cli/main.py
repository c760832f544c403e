"""The `quarterdeck` command: its subcommands, and Ctrl-C while one is imported.

`dispatch` runs a command line. Keep imports here to a minimum: until `main` has replaced the
handler, Ctrl-C is a traceback.
"""

import os
import signal
import sys

COMMANDS: dict[str, str] = {
    "up": "start the hub and, if needed, the runner",
    "down": "stop the hub, the runner and all agents",
    "status": "show the status of the hub and the runner",
    "restart": "restart the hub (--runner: the runner)",
    "upgrade": "install a newer version and restart the hub and the runner",
    "service": "start the hub at login (systemd or launchd)",
    "relay": "run a relay so that phones can reach your hub from anywhere",
    "devices": "list, pair and revoke devices",
    "machines": "list, add and remove other machines",
    "join": "let a hub on another machine run agents here",
    "policy": "show what your rules decide for a command",
    "run": "send a prompt to an agent and follow its turn",
    "sessions": "list sessions; those that need you come first",
    "show": "print a session from its log",
    "tail": "follow sessions live",
    "fork": "start a new session from an existing one",
    "rename": "change the title of a session",
    "archive": "hide a session from lists",
    "export": "write a session to a file",
    "agents": "list, install, update and remove agents",
    "login": "sign in to an agent",
    "adopt": "follow sessions started in Claude Code or other programs",
    "acp": "serve an agent over ACP, on stdio or HTTP",
    "proxy": "connect an editor to the hub",
    "check": "check the stored data for damage",
    "repair": "recover intact data from damaged files",
    "backup": "back up all data, even while the hub is running",
    "restore": "restore a backup",
    "compact": "reclaim disk space from deleted sessions",
    "db": "check, migrate or fill the hub's PostgreSQL database",
    "demo": "try Quarterdeck with an offline agent (no API key)",
    "doctor": "check the installation for problems",
    "runner": "run agents in the background (started by up)",
    "completion": "print or install completion for bash, zsh and fish",
}
"""Each command with its line in the help; its module is `commands/<name>.py`."""
HEADINGS: dict[str, str] = {
    "up": "Hub",
    "run": "Sessions",
    "agents": "Agents and editors",
    "check": "Data",
    "demo": "Other",
}
"""Headings of the help, each by the command that it comes before."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit status.

    Ctrl-C is only recorded until everything is imported: a KeyboardInterrupt in the middle of an
    import is a traceback, and inside an extension module it has been a crash.
    """
    if os.getpid() == 1:  # of a container
        from quarterdeck.cli import init_process  # noqa: PLC0415  # seldom needed

        status = init_process.run_as_init()
        if status is not None:
            return status
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

        return dispatch.run(
            sys.argv[1:] if arguments is None else arguments, COMMANDS, HEADINGS, on_ready
        )
    finally:
        release()

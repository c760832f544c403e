"""The command lines of all verbs of the hub. Standard library only: completion needs it fast."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from quarterdeck.cli.arguments import Parser, add_home, add_json, port, whole_number

SHELLS: Final = ("bash", "zsh", "fish")
WORDS: Final = ("agents", "sessions")
SHOWN_AS: Final = ("text", "context", "packets", "events", "state")
FORMATS: Final = ("jsonl", "markdown", "json")
SCOPES: Final = ("view", "prompt", "approve", "admin")
SESSION: Final = "its id, or the beginning or the end of it"

_RUN_STATUS: Final = """\
exit status:
  0    the agent ended its turn
  1    something failed; the message says what
  2    the command line cannot be understood
  3    the agent refused
  4    the agent reached a limit (tokens, or requests in a turn)
  130  cancelled, here or on another device"""


def up_parser() -> Parser:
    parser = Parser(
        "up",
        "Start the hub: it runs agents, keeps the log, and serves every surface until Ctrl-C.",
        (
            ("quarterdeck up", "on this computer only, at the usual port"),
            ("quarterdeck up --port 0 --json", "at any free port, told to a program"),
            (
                "quarterdeck up --host :: --allow-host desk --tls-cert my.pem --tls-key my.key",
                "for the phone in the same network",
            ),
        ),
        "Any other address needs a certificate or a proxy that has one: docs/use/security.md.",
    )
    parser.add_argument("--host", metavar="ADDRESS", help="where to listen (default: 127.0.0.1)")
    parser.add_argument("--port", type=port, help="where to listen (default: 7272; 0: any free)")
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="a certificate, as PEM")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="the key of the certificate")
    parser.add_argument(
        "--behind-proxy",
        action="store_true",
        default=None,
        help="a proxy in front of it speaks TLS; needs --allow-host",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="another name by which this hub is called; may be given again",
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument("--no-qr", action="store_true", help="leave out the QR code")
    parser.add_argument(
        "--log-file", type=Path, metavar="FILE", help="append log lines, as JSON, to this file"
    )
    add_home(parser)
    add_json(parser, "one object with the address and the pairing link, when it listens")
    return parser


def demo_parser() -> Parser:
    parser = Parser(
        "demo",
        "Try it: a hub of its own with an offline agent and a first session, which asks you"
        " something. No key, no network; nothing of yours is touched, and nothing is kept.",
        (
            ("quarterdeck demo", "answer with a key, in the browser, or with curl"),
            ("quarterdeck demo --plain", "no hub: every event as it is numbered, and the state"),
        ),
        "Without a terminal, what is asked is allowed, and it ends with the session.",
    )
    parser.add_argument("--port", type=port, help="where to listen (default: any that is free)")
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument("--no-qr", action="store_true", help="leave out the QR code")
    parser.add_argument("--exit", action="store_true", help="end when the first session is done")
    parser.add_argument(
        "--stay", action="store_true", help="without a terminal: serve, and let others answer"
    )
    parser.add_argument("--plain", action="store_true", help="without a hub, in this terminal only")
    parser.add_argument(
        "--scenario",
        default="fix-a-bug",
        metavar="NAME|FILE",
        help="the scenario: a name from --list, or a file (docs/embed/scripted-agent.md)",
    )
    parser.add_argument("--list", action="store_true", help="list the scenarios and exit")
    parser.add_argument("--fast", action="store_true", help="leave out the pauses")
    parser.add_argument("--yes", action="store_true", help="allow what the agent asks for")
    add_json(parser, "events as lines; with --plain, the state as the last")
    return parser


def run_parser() -> Parser:
    parser = Parser(
        "run",
        "Give an agent a prompt and watch it work; what it asks for is answered with a key.",
        (
            ("quarterdeck run demo 'hello'", "the built-in agent without a model: works offline"),
            ("quarterdeck run claude 'mend the tests' --cwd ~/shop", "an agent that is installed"),
            ("git diff | quarterdeck run demo -", "the prompt comes from standard input"),
            ("quarterdeck run 'hello' -- my-agent --acp", "any command that speaks ACP"),
            ("quarterdeck run --session 3f 'and now?'", "go on with a session"),
        ),
        "It uses the hub that is running, or is one itself until the turn ends. Ctrl-C cancels\n"
        "the turn; the second time it leaves: the session goes on in a hub that is running.\n\n"
        + _RUN_STATUS,
    )
    parser.add_argument(
        "words", nargs="*", metavar="AGENT PROMPT", help="the agent's name, and what to do"
    )
    parser.add_argument("--cwd", type=Path, metavar="FOLDER", help="where it works (default: here)")
    parser.add_argument("--mode", metavar="ID", help="the mode to work in, one of the agent's own")
    parser.add_argument("--session", metavar="ID", help=f"go on with this session: {SESSION}")
    parser.add_argument(
        "--yes", action="store_true", help="allow, once each, whatever the agent asks for"
    )
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="reject what nobody here can answer; otherwise it waits for another device",
    )
    add_home(parser)
    add_json(parser, "every event as a line, and the result as the last")
    return parser


def agents_parser() -> Parser:
    parser = Parser(
        "agents",
        "List the agents: known ones, whether they are installed, and which are running.",
        (("quarterdeck agents", "all that this hub could start"),),
    )
    add_home(parser)
    add_json(parser, '{"agents": [...], "running": [...]}')
    return parser


def sessions_parser() -> Parser:
    parser = Parser(
        "sessions",
        "List the sessions: which need you, which are running, which are idle or done.",
        (
            ("quarterdeck sessions", "the newest first"),
            ("quarterdeck sessions --state needs-you", "those that wait for an answer"),
        ),
    )
    parser.add_argument(
        "--state",
        choices=("needs-you", "running", "idle", "done"),
        metavar="STATE",
        help="only those: needs-you, running, idle or done",
    )
    parser.add_argument("--all", action="store_true", help="also those that are closed")
    parser.add_argument("--limit", type=whole_number, default=50, help="at most (default: 50)")
    add_home(parser)
    add_json(parser, '{"sessions": [...]}')
    return parser


def show_parser() -> Parser:
    parser = Parser(
        "show",
        "Show a session as the log has it.",
        (
            ("quarterdeck show 3f", "what was said and done"),
            ("quarterdeck show 3f --as state --at 120", "the folded state after event 120"),
            ("quarterdeck show 3f --as events --from 120", "the events after 120, a line each"),
            ("quarterdeck show 3f --as packets --json", "as packets, for programs"),
        ),
    )
    parser.add_argument("session", metavar="SESSION", help=SESSION)
    parser.add_argument(
        "--as",
        dest="form",
        choices=SHOWN_AS,
        default="text",
        metavar="FORM",
        help=f"one of {', '.join(SHOWN_AS)} (default: text)",
    )
    parser.add_argument("--at", type=whole_number, metavar="SEQ", help="as it was at this event")
    parser.add_argument(
        "--from", type=whole_number, dest="from_seq", default=0, metavar="SEQ", help="after this"
    )
    add_home(parser)
    add_json(parser, "JSON lines; without --as, the events")
    return parser


def tail_parser() -> Parser:
    parser = Parser(
        "tail",
        "Watch a session, or all of them, until Ctrl-C; what is missed while the hub is away comes"
        " afterwards.",
        (
            ("quarterdeck tail", "all sessions, from now on"),
            ("quarterdeck tail 3f --from 0", "one session, from its beginning"),
        ),
    )
    parser.add_argument("session", nargs="?", metavar="SESSION", help=SESSION)
    parser.add_argument(
        "--from",
        type=whole_number,
        dest="from_seq",
        metavar="SEQ",
        help="after this (default: now)",
    )
    parser.add_argument(
        "--exit", action="store_true", help="end when no session of those is at work any more"
    )
    add_home(parser)
    add_json(parser, "every event as a line")
    return parser


def export_parser() -> Parser:
    parser = Parser(
        "export",
        "Write a session to a file: the log itself, a document to read, or its state.",
        (
            ("quarterdeck export 3f -o session.jsonl", "every event as it was stored"),
            ("quarterdeck export 3f --format markdown", "to read, on standard output"),
        ),
        "A file appears when it is complete; one that is there is kept unless --force is given.",
    )
    parser.add_argument("session", metavar="SESSION", help=SESSION)
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="jsonl",
        metavar="FORMAT",
        help="jsonl (the log, without loss), markdown, or json (the state); default: jsonl",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: stdout")
    parser.add_argument("--force", action="store_true", help="replace the file if it is there")
    add_home(parser)
    add_json(parser, "the same as --format json")
    return parser


def devices_parser() -> Parser:
    parser = Parser(
        "devices",
        "List, pair, rename and revoke the devices that may use the hub. It must be running.",
        (
            ("quarterdeck devices", "who may come in"),
            ("quarterdeck devices pair --scope approve", "a code and a QR code for a new one"),
            ("quarterdeck devices revoke 7c", "at once, also what it has open"),
            ("quarterdeck devices rename 7c 'my phone'", "for the list"),
        ),
        "Scopes, each with those before it: view, prompt, approve, admin.",
    )
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "pair", "revoke", "rename"),
        default="list",
        metavar="ACTION",
        help="list (default), pair, revoke ID, or rename ID NAME",
    )
    parser.add_argument("words", nargs="*", metavar="ID", help="a device, and its new name")
    parser.add_argument(
        "--scope",
        choices=SCOPES,
        default="approve",
        metavar="SCOPE",
        help="what a new device may do (default: approve)",
    )
    parser.add_argument("--name", metavar="NAME", help="what a new device is called")
    add_home(parser)
    add_json(parser, "the hub's answer")
    return parser


def proxy_parser() -> Parser:
    parser = Parser(
        "proxy",
        "Be an agent for an editor: it speaks ACP on standard input and output, and the agent works"
        " in the hub, where phone, browser and terminal see the same session.",
        (
            ("quarterdeck proxy claude", "set this as the agent in an editor: docs/use/editors.md"),
            ("quarterdeck proxy demo", "the built-in agent without a model"),
        ),
        "It uses the hub that is running: then sessions go on when the editor is closed. Without\n"
        "one it is a hub itself, for this computer alone and until the editor ends it.",
    )
    parser.add_argument("agent", metavar="AGENT", help="one that quarterdeck agents lists")
    add_home(parser)
    return parser


def doctor_parser() -> Parser:
    parser = Parser(
        "doctor",
        "Look for what could be wrong: one line for each thing, with what to do about it.",
        (("quarterdeck doctor", "exit status 1 if something fails"),),
        "Nothing is changed, and nothing is sent anywhere but to the hub itself.",
    )
    add_home(parser)
    add_json(parser, '{"checks": [{"name", "status", "found", "remedy"}]}')
    return parser


def completion_parser() -> Parser:
    parser = Parser(
        "completion",
        "Print a script that completes this command in a shell.",
        (
            ("quarterdeck completion bash", "put it into ~/.bash_completion or source it"),
            ("quarterdeck completion zsh", "put it into a folder of $fpath as _quarterdeck"),
            (
                "quarterdeck completion fish",
                "put it into ~/.config/fish/completions/quarterdeck.fish",
            ),
        ),
    )
    parser.add_argument(
        "shell",
        choices=(*SHELLS, *WORDS),
        metavar="SHELL",
        help="bash, zsh or fish; agents and sessions print the names that the scripts ask for",
    )
    return parser


PARSERS: Final[dict[str, Callable[[], Parser]]] = {
    "up": up_parser,
    "demo": demo_parser,
    "run": run_parser,
    "agents": agents_parser,
    "sessions": sessions_parser,
    "show": show_parser,
    "tail": tail_parser,
    "export": export_parser,
    "devices": devices_parser,
    "proxy": proxy_parser,
    "doctor": doctor_parser,
    "completion": completion_parser,
}

"""`quarterdeck policy check`: what the rules decide about a command, and why."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from quarterdeck.cli.arguments import Parser, add_json


def parser() -> Parser:
    parser = Parser(
        "policy",
        "Explain what the rules in the hub's configuration decide. Use `policy check`.",
        (("quarterdeck policy check 'git status'", "see quarterdeck policy check --help"),),
    )
    parser.set_defaults(action=None)
    parser.subparsers["check"] = _check_parser()
    return parser


def _check_parser() -> Parser:
    parser = Parser(
        "policy check",
        "Show what the rules decide about a command (allow, deny or ask), which rule decides, how"
        " the command was parsed, and why. Nothing is run.",
        (
            ("quarterdeck policy check 'npm test && git status'", "with the rules of the hub"),
            ("quarterdeck policy check --config rules.toml 'ls -la'", "with the rules in a file"),
            ("quarterdeck policy check --stdin < calls.jsonl", "one answer for each line"),
        ),
        'With --stdin each line is a JSON object: {"command": "ls"}, or a whole tool call as an'
        " agent sends it. Each answer is JSON on one line, in the same order; a line that is not a"
        ' call gets {"error": …}.',
    )
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="command line to check")
    parser.add_argument(
        "--stdin",
        action="store_true",
        help="read calls from standard input, one JSON object per line",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="file with the rules (default: $QUARTERDECK_HUB_CONFIG or"
        " ~/.config/quarterdeck/hub.toml)",
    )
    parser.add_argument(
        "--workspace",
        type=Path,
        metavar="DIR",
        help="folder of the session (default: the current one)",
    )
    parser.add_argument(
        "--agent", metavar="NAME", help="name of the agent, for rules that are limited to one"
    )
    add_json(parser, '{"decision", "rule", "reason", "reading", "risk"}')
    parser.completed = {"--agent": "agents"}
    parser.set_defaults(action="check")
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.policy_check import run_policy

    return run_policy

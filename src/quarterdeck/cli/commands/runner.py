"""`quarterdeck runner`: the process that runs agents; `up` starts it."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable

from quarterdeck.cli.arguments import Parser, add_home


def parser() -> Parser:
    parser = Parser(
        "runner",
        "Run agents, and manage their processes, logs, prompts and requests, until SIGTERM."
        " `quarterdeck up` starts a runner if there is none and leaves it running, so you do not"
        " need to start one yourself. It has no port; the hub and other commands reach it through"
        " runner.sock in the data directory.",
        (("quarterdeck runner", "for a service manager, alongside `quarterdeck up`"),),
    )
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="check the configuration and exit")
    add_home(parser)
    return parser


def load() -> Callable[[Namespace], int]:
    from quarterdeck.cli.runner_service import serve_runner

    return serve_runner

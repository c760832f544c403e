"""`quarterdeck demo`: a hub with an offline agent and a first session; `--plain`: without a hub."""

from __future__ import annotations

from pathlib import Path

from quarterdeck.cli import demo_hub, demo_plain
from quarterdeck.cli.arguments import DONE, read
from quarterdeck.cli.parsers import demo_parser
from quarterdeck.errors import CommandFailed


def run(arguments: list[str]) -> int:
    """Play the demo and return the exit status."""
    chosen = read(demo_parser(), arguments)
    if chosen is None:
        return DONE
    if chosen.list:
        demo_plain.print_scenarios()
        return DONE
    try:
        Path.cwd()
    except FileNotFoundError as error:
        raise CommandFailed("the folder you are in is gone; change to another") from error
    return demo_plain.play(chosen) if chosen.plain else demo_hub.play(chosen)

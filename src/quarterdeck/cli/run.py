"""`quarterdeck run AGENT PROMPT`: one turn, watched and answered in the terminal."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Final

import anyio

from quarterdeck.cli.answering import How
from quarterdeck.cli.arguments import DONE, read
from quarterdeck.cli.hub_link import Place
from quarterdeck.cli.keyboard import has_person
from quarterdeck.cli.parsers import run_parser
from quarterdeck.cli.screen import Screen
from quarterdeck.cli.story import JsonView, StoryView
from quarterdeck.cli.turn import Errand, run_errand
from quarterdeck.errors import CommandFailed, Misused

_HOW: Final = "quarterdeck run --help shows how"


def run(arguments: list[str]) -> int:
    before, command = _split(arguments)
    chosen = read(run_parser(), before)
    if chosen is None:
        return DONE
    errand = _errand(chosen, command)
    screen = Screen(sys.stdout)
    view = (
        JsonView(sys.stdout)
        if chosen.json
        else StoryView(screen, cwd=errand.cwd, shows_questions=False)
    )
    return anyio.run(run_errand, Place.of(chosen), errand, view)


def _split(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Return what stands before `--`, and the agent's command behind it, if there is one."""
    if "--" not in arguments:
        return arguments, None
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


def _errand(chosen: Namespace, command: list[str] | None) -> Errand:
    agent, prompt = _words(chosen, command)
    if command is not None and not command:
        raise Misused(f"there is no command behind --; {_HOW}")
    return Errand(
        agent=agent,
        command=tuple(command or ()),
        session=chosen.session,
        prompt=_prompt(prompt),
        cwd=_folder(chosen.cwd),
        mode=chosen.mode,
        how=_how(chosen),
        is_json=chosen.json,
    )


def _words(chosen: Namespace, command: list[str] | None) -> tuple[str | None, str]:
    """Tell agent and prompt apart: with a command or a session, there is only a prompt."""
    words: list[str] = chosen.words
    has_agent = command is None and chosen.session is None
    if command is not None and chosen.session is not None:
        raise Misused("a session has its agent already; leave out --session or the command")
    wanted = 2 if has_agent else 1
    if len(words) == wanted - 1 and not sys.stdin.isatty():
        words = [*words, "-"]
    if len(words) != wanted:
        shape = "an agent and a prompt" if has_agent else "a prompt"
        raise Misused(f"run takes {shape}, not {len(words)} words: quote the prompt; {_HOW}")
    return (words[0], words[1]) if has_agent else (None, words[0])


def _prompt(word: str) -> str:
    if word != "-":
        return word
    if sys.stdin.isatty():
        print("quarterdeck: type the prompt, then Ctrl-D", file=sys.stderr)
    return sys.stdin.read()


def _folder(given: Path | None) -> str:
    try:
        folder = (Path.cwd() if given is None else given.expanduser()).resolve(strict=True)
    except OSError as error:
        place = given or "the folder you are in"
        raise CommandFailed(f"{place}: {error.strerror}; choose another with --cwd") from error
    if not folder.is_dir():
        raise CommandFailed(f"{folder} is no folder; choose another with --cwd")
    return os.fspath(folder)


def _how(chosen: Namespace) -> How:
    if chosen.yes:
        return "allow"
    if has_person() and not chosen.json:
        return "ask"
    return "reject" if chosen.no_wait else "wait"

"""What a user can type instead of a prompt: `/plan`, `/compact`, `/clear`, `/tools`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quarterdeck.agent.builtin.agent import COMMANDS
from quarterdeck.agent.builtin.conversation import Text, UserMessage
from quarterdeck.agent.builtin.model import Model
from quarterdeck.agent.builtin.turns import Answering
from quarterdeck.agent.builtin.work import Work
from quarterdeck.agent.builtin.workshop import Workshop

if TYPE_CHECKING:
    from quarterdeck.agent.turn import Turn

_PLANNING = """\
Make a plan for the following task. Look at what you need to, then show the plan with the `plan`
tool and explain it in a few sentences. Change nothing and run nothing: the user decides.
"""


def command_of(message: UserMessage) -> tuple[str, str] | None:
    """Return the command a prompt begins with, and what follows it; None if it has none."""
    if not message.parts or not isinstance(message.parts[0], Text):
        return None
    first, *rest = message.parts[0].text.split(maxsplit=1) or [""]
    name = first.removeprefix("/")
    is_command = first != name and any(command["name"] == name for command in COMMANDS)
    return (name, "".join(rest).strip()) if is_command else None


async def run_command(
    name: str,
    message: UserMessage,
    turn: Turn,
    work: Work,
    workshop: Workshop,
    model: Model | None,
) -> str:
    """Do what a command says; `model` is there for those that need one."""
    match name:
        case "plan":
            assert model is not None
            return await _plan(message, turn, Answering(turn, model, work, workshop))
        case "compact":
            if not work.messages:
                turn.say("There is nothing to compact.")
                return "end_turn"
            assert model is not None
            left = await Answering(turn, model, work, workshop).compact()
            turn.say(f"The conversation was summarised; it has about {left} tokens now.")
        case "clear":
            work.messages, work.tokens = [], 0
            work.remember()
            turn.say("The model has forgotten the conversation; you can still read it here.")
        case _:
            turn.say(_tools(turn, work, workshop))
    return "end_turn"


async def _plan(message: UserMessage, turn: Turn, answering: Answering) -> str:
    first = message.parts[0]
    assert isinstance(first, Text)
    task = first.text.strip().removeprefix("/plan").strip()
    if not task and len(message.parts) == 1:
        turn.say("Say what to plan, for example `/plan add a command line option`.")
        return "end_turn"
    parts = (Text(text=f"{_PLANNING}\n{task}"), *message.parts[1:])
    return await answering.answer(UserMessage(parts=parts), mode="read-only")


def _tools(turn: Turn, work: Work, workshop: Workshop) -> str:
    tools = workshop.tools(turn.session.mode, work).values()
    lines = [f"Tools in mode {turn.session.mode}:", ""]
    for tool in tools:
        asks = "; asks first" if tool.asks else ""
        lines.append(f"- `{tool.name}` ({tool.shown_kind}{asks})")
    return "\n".join(lines)

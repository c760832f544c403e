"""What the built-in agent does with its sessions; imported when the first one is opened.

It owns what outlives a turn: terminals, and the MCP servers of each session. Leaving it ends them.

PART: What a user can type instead of a prompt: `/plan`, `/compact`, `/clear`, `/tools`.

PART: Find the model for a name; what a provider needs is imported when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup, TaskStatus

from quarterdeck.agent.builtin.agent import COMMANDS
from quarterdeck.agent.builtin.demo_model import DemoModel
from quarterdeck.agent.builtin.history import Text, UserMessage, user_message
from quarterdeck.agent.builtin.mcp import McpServers
from quarterdeck.agent.builtin.model import Model
from quarterdeck.agent.builtin.session import AgentResources, BuiltinSession
from quarterdeck.agent.builtin.settings import DEMO, Setup, split_model
from quarterdeck.agent.builtin.turn import ModelTurn
from quarterdeck.errors import ModelFailed, RpcError
from quarterdeck.wire import INTERNAL_ERROR, INVALID_PARAMS, background_tasks

if TYPE_CHECKING:
    from quarterdeck.agent.session import AgentSession
    from quarterdeck.agent.turn import AgentTurn


_TITLE_CHARACTERS = 60
_CLOSE_SECONDS = 2.0  # for the connections to providers

OpenModel = Callable[[str, Setup], Model]


class Engine:
    """Made by `BuiltinAgent`; `run` is the task that owns everything."""

    def __init__(
        self, setup: Setup, now: Callable[[], datetime], open_model: OpenModel | None
    ) -> None:
        self._setup = setup
        self._resources = AgentResources(setup, now)
        self._open_model = open_model or find_model
        self._models: dict[str, Model] = {}
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Keep terminals and servers until it is cancelled."""
        try:
            async with self._resources.terminals, background_tasks() as self._tasks:
                task_status.started()
                await anyio.sleep_forever()
        finally:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                for model in self._models.values():
                    await model.aclose()

    async def open_session(self, session: AgentSession) -> None:
        """Start the session's MCP servers and recall its conversation."""
        assert self._tasks is not None
        state = BuiltinSession(session)
        if session.mcp_servers:
            state.servers = McpServers()
            await self._tasks.start(
                state.servers.serve, session.mcp_servers, str(session.cwd), self._setup.environ
            )
        session.data = state

    async def close_session(self, session: AgentSession) -> None:
        state: BuiltinSession = session.data
        await self._resources.terminals.cleanup_session(session.id)
        if state.servers is not None:
            await state.servers.close()
        await to_thread.run_sync(state.scratch.remove)

    async def prompt(self, turn: AgentTurn, model_name: str) -> str:
        """Answer a prompt, or do what a command says; return the stop reason.

        Raises:
            RpcError: if the model does not answer; its message says what to do.
        """
        state: BuiltinSession = turn.session.data
        message = user_message(turn.prompt)
        if not message.parts:
            raise RpcError(INVALID_PARAMS, "the prompt is empty; say what you want")
        command = command_of(message)
        try:
            if command is not None:
                needs_model = command[0] in ("plan", "compact")
                model = await self.model(model_name) if needs_model else None
                return await run_command(command[0], message, turn, state, self._resources, model)
            _give_title(turn)
            model_turn = ModelTurn(turn, await self.model(model_name), state, self._resources)
            return await model_turn.answer(_with_initial_message(turn, state, message))
        except ModelFailed as failure:
            raise RpcError(INTERNAL_ERROR, str(failure), {"reason": failure.reason}) from failure

    async def model(self, name: str) -> Model:
        """Return a model; made in a thread, because importing a provider takes a second.

        Raises:
            ModelFailed: if it cannot be used.
        """
        if name not in self._models:
            self._models[name] = await to_thread.run_sync(
                self._open_model, name, self._setup, abandon_on_cancel=True
            )
        return self._models[name]


def _with_initial_message(
    turn: AgentTurn, state: BuiltinSession, message: UserMessage
) -> UserMessage:
    """Let a session begin with what the person who started the server wants it to."""
    initial = turn.session.initial_message
    if not initial or state.messages:
        return message
    return UserMessage(parts=(Text(text=initial), *message.parts))


def _give_title(turn: AgentTurn) -> None:
    """Call the session by the first line the user has written: what is attached says nothing."""
    if turn.session.title is not None:
        return
    written = [block["text"] for block in turn.prompt if block["type"] == "text"]
    lines = [line for text in written for line in text.splitlines() if line.strip()]
    if lines:
        title = " ".join(lines[0].split())
        if len(title) > _TITLE_CHARACTERS:
            title = title[: _TITLE_CHARACTERS - 1].rstrip() + "…"
        turn.session.title = title


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
    turn: AgentTurn,
    state: BuiltinSession,
    resources: AgentResources,
    model: Model | None,
) -> str:
    """Do what a command says; `model` is there for those that need one."""
    match name:
        case "plan":
            assert model is not None
            return await _plan(message, turn, ModelTurn(turn, model, state, resources))
        case "compact":
            if not state.messages:
                turn.say("There is nothing to compact.")
                return "end_turn"
            assert model is not None
            left = await ModelTurn(turn, model, state, resources).compact()
            turn.say(f"The conversation was summarised; it has about {left} tokens now.")
        case "clear":
            state.messages, state.tokens = [], 0
            state.remember()
            turn.say("The model has forgotten the conversation; you can still read it here.")
        case _:
            turn.say(_tools(turn, state, resources))
    return "end_turn"


async def _plan(message: UserMessage, turn: AgentTurn, model_turn: ModelTurn) -> str:
    first = message.parts[0]
    assert isinstance(first, Text)
    task = first.text.strip().removeprefix("/plan").strip()
    if not task and len(message.parts) == 1:
        turn.say("Say what to plan, for example `/plan add a command line option`.")
        return "end_turn"
    parts = (Text(text=f"{_PLANNING}\n{task}"), *message.parts[1:])
    return await model_turn.answer(UserMessage(parts=parts), mode="read-only")


def _tools(turn: AgentTurn, state: BuiltinSession, resources: AgentResources) -> str:
    tools = resources.tools(turn.session.mode, state).values()
    lines = [f"Tools in mode {turn.session.mode}:", ""]
    for tool in tools:
        asks = "; asks first" if tool.asks else ""
        lines.append(f"- `{tool.name}` ({tool.shown_kind}{asks})")
    return "\n".join(lines)


def find_model(name: str, setup: Setup) -> Model:
    """Return the model of that name.

    Raises:
        ModelFailed: if it cannot be used: a key or a package is missing.
    """
    settings = setup.settings
    if name == DEMO:
        return DemoModel(
            pause_seconds=settings.demo_pause_seconds, context_window=settings.context_window
        )
    provider_name, model_name = split_model(name)
    provider = setup.provider(provider_name)
    if provider is None or not model_name:
        raise ModelFailed("setup", f"there is no model {name!r}; name it as provider:model")
    key = setup.key(provider_name)
    try:
        from quarterdeck.agent.builtin.pydantic_model import (  # noqa: PLC0415 - optional, and slow
            PydanticModel,
        )

        return PydanticModel(name, model_name, provider, key, setup)
    except ImportError as error:
        sentence = f"the packages for {provider_name} are not installed"
        raise ModelFailed("setup", f"{sentence}; pip install 'quarterdeck[agent]'") from error

"""The engine of the built-in agent: opens and closes its sessions, answers prompts, runs commands.

It owns what outlives a turn: terminals, the MCP servers of each session, and the connections to
model providers; ending `run` ends them. A prompt that begins with a slash command (`/plan`,
`/compact`, `/clear`, `/tools`) is handled here, any other by `ModelTurn`. The packages of a model
provider are imported when the provider is first used.
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
_CLOSE_SECONDS = 2.0  # for closing the connections to providers

_PLANNING = """\
Make a plan for the following task. Look at what you need to, then show the plan with the `plan`
tool and explain it in a few sentences. Change nothing and run nothing: the user decides.
"""

OpenModel = Callable[[str, Setup], Model]


class Engine:
    """Created by `BuiltinAgent`; `run` is the task that owns its resources."""

    def __init__(
        self, setup: Setup, now: Callable[[], datetime], open_model: OpenModel | None
    ) -> None:
        self._setup = setup
        self._resources = AgentResources(setup, now)
        self._open_model = open_model or find_model
        self._models: dict[str, Model] = {}
        self._tasks: TaskGroup | None = None

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Hold terminals, MCP servers and models open until cancelled."""
        try:
            async with self._resources.terminals, background_tasks() as self._tasks:
                task_status.started()
                await anyio.sleep_forever()
        finally:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                for model in self._models.values():
                    await model.aclose()

    async def open_session(self, session: AgentSession) -> None:
        """Start the session's MCP servers and restore its history."""
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
        await to_thread.run_sync(state.sandbox_folder.remove)

    async def prompt(self, turn: AgentTurn, model_name: str) -> str:
        """Answer a prompt or run a command; return the stop reason.

        Raises:
            RpcError: if the model fails; its message says what to do.
        """
        state: BuiltinSession = turn.session.data
        message = user_message(turn.prompt)
        if not message.parts:
            raise RpcError(INVALID_PARAMS, "the prompt is empty; send some text")
        command = command_of(message)
        try:
            if command is not None:
                needs_model = command[0] in ("plan", "compact")
                model = await self.model(model_name) if needs_model else None
                return await run_command(command[0], message, turn, state, self._resources, model)
            _set_title(turn)
            model_turn = ModelTurn(turn, await self.model(model_name), state, self._resources)
            return await model_turn.answer(_with_initial_message(turn, state, message))
        except ModelFailed as failure:
            raise RpcError(INTERNAL_ERROR, str(failure), {"reason": failure.reason}) from failure

    async def model(self, name: str) -> Model:
        """Return a model; opened in a thread, because importing a provider takes a second.

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
    """Put the server operator's initial message before the first prompt of a session."""
    initial = turn.session.initial_message
    if not initial or state.messages:
        return message
    return UserMessage(parts=(Text(text=initial), *message.parts))


def _set_title(turn: AgentTurn) -> None:
    """Title the session with the first line of text the user wrote, not with attachments."""
    if turn.session.title is not None:
        return
    written = [block["text"] for block in turn.prompt if block["type"] == "text"]
    lines = [line for text in written for line in text.splitlines() if line.strip()]
    if lines:
        title = " ".join(lines[0].split())
        if len(title) > _TITLE_CHARACTERS:
            title = title[: _TITLE_CHARACTERS - 1].rstrip() + "…"
        turn.session.title = title


def command_of(message: UserMessage) -> tuple[str, str] | None:
    """Return the command that a prompt begins with and its arguments; None if there is none."""
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
    """Run a command; `model` is set for commands that need one."""
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
        turn.say("Describe the task, for example `/plan add a command line option`.")
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
    """Return the model for a name.

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

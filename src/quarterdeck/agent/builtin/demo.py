"""The model `demo`: no key, no network, the same answer every time, through the same loop.

It is told what to do by lines of the prompt that begin with a slash (`demo_script` has the little
language), tours the tools if the prompt asks for a `tour`, and says what it is otherwise.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence

import anyio
from anyio.lowlevel import checkpoint

from quarterdeck.agent.builtin.compaction import HEADING
from quarterdeck.agent.builtin.conversation import (
    AssistantMessage,
    Call,
    Media,
    Message,
    UserMessage,
    estimated_tokens,
)
from quarterdeck.agent.builtin.demo_script import Step, read_script
from quarterdeck.agent.builtin.model import (
    CallStarted,
    Delta,
    Reply,
    Request,
    TextDelta,
    ThoughtDelta,
    Usage,
)
from quarterdeck.errors import ModelFailed

_WINDOW = 32_000
_FILE = "quarterdeck-demo.txt"
_TOUR = re.compile(r"\btour\b", re.IGNORECASE)


class DemoModel:
    """Answers by what stands in the last prompt and how often it has answered since."""

    name = "demo"

    def __init__(self, *, pause_seconds: float = 0.0, context_window: int | None = None) -> None:
        self.context_window = context_window or _WINDOW
        self._pause_seconds = pause_seconds

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        step = self._step(request)
        if step.wait_seconds:
            await anyio.sleep(step.wait_seconds)
        if step.failure is not None:
            raise ModelFailed(step.failure, f"the demo model was told to fail: {step.failure}")
        for piece in _pieces(step.thought):
            yield ThoughtDelta(piece)
            await self._pause()
        for piece in _pieces(step.text):
            yield TextDelta(piece)
            await self._pause()
        number = len(request.messages)
        calls = tuple(
            Call(id=f"demo-{number}-{index}", name=name, arguments=arguments)
            for index, (name, arguments) in enumerate(step.calls)
        )
        for call in calls:
            yield CallStarted(call.id, call.name)
            await self._pause()
        message = AssistantMessage(text=step.text, thought=step.thought, calls=calls)
        usage = Usage(estimated_tokens(request.messages), estimated_tokens([message]))
        yield Reply(message, usage, step.stop)

    async def aclose(self) -> None:
        """Do nothing: there is no provider."""

    def _step(self, request: Request) -> Step:
        position, prompt = _last_prompt(request.messages)
        done = sum(
            isinstance(message, AssistantMessage) for message in request.messages[position + 1 :]
        )
        offered = {tool.name for tool in request.tools}
        steps = _steps(prompt, request.messages[:position], offered)
        return steps[min(done, len(steps) - 1)]

    async def _pause(self) -> None:
        if self._pause_seconds:
            await anyio.sleep(self._pause_seconds)
        else:
            await checkpoint()


def _last_prompt(messages: Sequence[Message]) -> tuple[int, UserMessage]:
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if isinstance(message, UserMessage):
            return index, message
    return 0, UserMessage(parts=())


def _steps(prompt: UserMessage, before: Sequence[Message], offered: set[str]) -> list[Step]:
    text = prompt.text
    if text.startswith("<conversation>"):
        return [Step(text=_summary(text))]
    if text.startswith(f"[{HEADING}]"):
        return [Step(text="I have read the summary and can go on.")]
    script = read_script(text, recall=lambda: _recalled(before))
    if script:
        return script
    if _TOUR.search(text):
        return _tour(offered)
    return [Step(thought="This needs no tool.", text=_greeting(prompt))]


def _greeting(prompt: UserMessage) -> str:
    media = [part.media_type for part in prompt.parts if isinstance(part, Media)]
    seen = f" I also see {', '.join(media)}." if media else ""
    first_line = prompt.text.strip().partition("\n")[0]
    heard = f"You said: {first_line}" if first_line else "You said nothing."
    return (
        f"{heard}{seen}\n\nI am the demo model: no key, no network, the same answer every time."
        " Ask for a `tour` to see the tools at work, or write a line such as"
        ' `/tool read {"path": "README.md"}` to use one. For a real model, start the agent with'
        " `--model provider:name`.\n"
    )


def _recalled(before: Sequence[Message]) -> str:
    prompts = [message.text for message in before if isinstance(message, UserMessage)]
    if not prompts:
        return "I remember nothing."
    return f"I remember {len(prompts)} prompts; the first was: {prompts[0]}"


def _summary(conversation: str) -> str:
    prompts = re.findall(r"^User: (.*)$", conversation, re.MULTILINE)
    return "The user said: " + "; ".join(prompts)


def _tour(offered: set[str]) -> list[Step]:
    """Show each kind of tool once; what is not offered in the session's mode is left out."""
    prefix = "" if "read" in offered else "sandbox_"
    entries = ["Look around", "Write a file and change it", "Check the file"]

    def plan(done: int) -> tuple[str, dict[str, object]]:
        states = ["completed"] * done + ["in_progress"] + ["pending"] * len(entries)
        steps = [
            {"content": content, "status": states[index], "priority": "medium"}
            for index, content in enumerate(entries)
        ]
        return "plan", {"entries": steps}

    first = {"path": _FILE, "content": "Quarterdeck\nkeeps watch.\n"}
    change = {"path": _FILE, "old": "keeps watch", "new": "keeps a good watch"}
    steps = [
        Step(
            thought="The user wants to see what I can do. First a plan, then a look around.",
            text="I will show you my tools. First I look around.\n\n",
            calls=(plan(0), (f"{prefix}list", {"path": "."})),
        ),
        Step(text="Now I write a file.\n\n", calls=(plan(1), (f"{prefix}write", first))),
        Step(text="One word is missing.\n\n", calls=((f"{prefix}edit", change),)),
        Step(
            text="Let me check it.\n\n",
            calls=(
                plan(2),
                (f"{prefix}read", {"path": _FILE}),
                (f"{prefix}shell", {"command": f"wc -l {_FILE}"}),
            ),
        ),
        Step(calls=(plan(3),)),
        Step(text=f"That was the tour. You can delete `{_FILE}` now.\n"),
    ]
    return [_within(step, offered) for step in steps]


def _within(step: Step, offered: set[str]) -> Step:
    calls = tuple(call for call in step.calls if call[0] in offered)
    missing = [name for name, _ in step.calls if name not in offered]
    note = f"(In this mode I have no {', '.join(missing)}.)\n\n" if missing else ""
    if not calls and step.calls:
        # Without a call the turn would end here, so the plan is called, which is always there.
        calls = (("plan", {"entries": [{"content": "Go on without it"}]}),)
    return Step(thought=step.thought, text=step.text + note, calls=calls)


def _pieces(text: str) -> list[str]:
    """Cut a text as a model would: words with the white space behind them."""
    return re.findall(r"\s*\S+\s*?|\s+$", text) if text else []

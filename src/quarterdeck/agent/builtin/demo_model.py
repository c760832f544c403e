"""`DemoModel`, the model `demo`: no key, no network, the same answer every time.

It shows the tools if the prompt contains the word `tour`, follows a script if the prompt has lines
of the language below, and introduces itself otherwise.

| line | what the model does |
| --- | --- |
| `/think TEXT` | thinks the text before it answers |
| `/say TEXT` | answers with the text and a line break |
| `/tool NAME {JSON}` | calls a tool, then continues with the next line |
| `/also NAME {JSON}` | calls another tool in the same answer |
| `/wait SECONDS` | waits before it answers |
| `/stop length` or `/stop refusal` | ends with that stop reason |
| `/fail REASON` | fails: `server`, `rate_limit`, `context`, ... |
| `/recall` | answers with what it remembers of earlier prompts |

An answer ends after its tools; the lines that follow belong to the next. Other lines are ignored.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import anyio
from anyio.lowlevel import checkpoint

from quarterdeck.agent.builtin.history import (
    AssistantMessage,
    Media,
    Message,
    ToolUse,
    UserMessage,
    estimated_tokens,
)
from quarterdeck.agent.builtin.instructions import SUMMARY_TITLE
from quarterdeck.agent.builtin.model import (
    FAILURES,
    CallStarted,
    Delta,
    ModelInput,
    ModelUsage,
    Reply,
    TextDelta,
    ThoughtDelta,
)
from quarterdeck.errors import JsonInvalid, ModelFailed
from quarterdeck.jsontext import decode_json

VERBS = ("/think", "/say", "/tool", "/also", "/wait", "/stop", "/fail", "/recall")

_WINDOW = 32_000
_FILE = "quarterdeck-demo.txt"
_TOUR = re.compile(r"\btour\b", re.IGNORECASE)


class DemoModel:
    """Derives each answer from the last prompt and the number of answers given since."""

    name = "demo"

    def __init__(self, *, pause_seconds: float = 0.0, context_window: int | None = None) -> None:
        self.context_window = context_window or _WINDOW
        self._pause_seconds = pause_seconds

    async def stream(self, request: ModelInput) -> AsyncGenerator[Delta]:
        step = self._step(request)
        if step.wait_seconds:
            await anyio.sleep(step.wait_seconds)
        if step.failure is not None:
            raise ModelFailed(step.failure, f"the script made the demo model fail: {step.failure}")
        for piece in _pieces(step.thought):
            yield ThoughtDelta(piece)
            await self._pause()
        for piece in _pieces(step.text):
            yield TextDelta(piece)
            await self._pause()
        number = len(request.messages)
        calls = tuple(
            ToolUse(id=f"demo-{number}-{index}", name=name, arguments=arguments)
            for index, (name, arguments) in enumerate(step.calls)
        )
        for call in calls:
            yield CallStarted(call.id, call.name)
            await self._pause()
        message = AssistantMessage(text=step.text, thought=step.thought, calls=calls)
        usage = ModelUsage(estimated_tokens(request.messages), estimated_tokens([message]))
        yield Reply(message, usage, step.stop)

    async def aclose(self) -> None:
        """Do nothing: there is no provider."""

    def _step(self, request: ModelInput) -> DemoStep:
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


def _steps(prompt: UserMessage, before: Sequence[Message], offered: set[str]) -> list[DemoStep]:
    text = prompt.text
    if text.startswith("<conversation>"):
        return [DemoStep(text=_summary(text))]
    if text.startswith(f"[{SUMMARY_TITLE}]"):
        return [DemoStep(text="I have read the summary and can go on.")]
    script = read_script(text, recall=lambda: _recalled(before))
    if script:
        return script
    if _TOUR.search(text):
        return _tour(offered)
    return [DemoStep(thought="This needs no tool.", text=_greeting(prompt))]


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


def _tour(offered: set[str]) -> list[DemoStep]:
    """Show each kind of tool once, without those that the session's mode does not offer."""
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
        DemoStep(
            thought="The user wants to see what I can do. First a plan, then a look around.",
            text="I will show you my tools. First I look around.\n\n",
            calls=(plan(0), (f"{prefix}list", {"path": "."})),
        ),
        DemoStep(text="Now I write a file.\n\n", calls=(plan(1), (f"{prefix}write", first))),
        DemoStep(text="One word is missing.\n\n", calls=((f"{prefix}edit", change),)),
        DemoStep(
            text="Let me check it.\n\n",
            calls=(
                plan(2),
                (f"{prefix}read", {"path": _FILE}),
                (f"{prefix}shell", {"command": f"wc -l {_FILE}"}),
            ),
        ),
        DemoStep(calls=(plan(3),)),
        DemoStep(text=f"That was the tour. You can delete `{_FILE}` now.\n"),
    ]
    return [_within(step, offered) for step in steps]


def _within(step: DemoStep, offered: set[str]) -> DemoStep:
    calls = tuple(call for call in step.calls if call[0] in offered)
    missing = [name for name, _ in step.calls if name not in offered]
    note = f"(In this mode I have no {', '.join(missing)}.)\n\n" if missing else ""
    if not calls and step.calls:
        # Without a call the turn would end here; `plan` is available in every mode.
        calls = (("plan", {"entries": [{"content": "Go on without it"}]}),)
    return DemoStep(thought=step.thought, text=step.text + note, calls=calls)


def _pieces(text: str) -> list[str]:
    """Split a text as a model would: words with the white space after them."""
    return re.findall(r"\s*\S+\s*?|\s+$", text) if text else []


@dataclass(frozen=True)
class DemoStep:
    """One answer of the model."""

    thought: str = ""
    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    wait_seconds: float = 0.0
    failure: str | None = None
    stop: Literal["stop", "length", "refusal"] = "stop"


def read_script(text: str, recall: Callable[[], str]) -> list[DemoStep]:
    """Return the answers that a prompt scripts; none if it has no line of the language."""
    steps: list[DemoStep] = []
    current: DemoStep | None = None
    for line in text.splitlines():
        verb, _, rest = line.strip().partition(" ")
        if verb not in VERBS:
            continue
        if current is not None and current.calls and verb != "/also":
            steps.append(current)
            current = None
        current = _with(current or DemoStep(), verb, rest, recall)
    if current is not None:
        steps.append(current)
    if steps and steps[-1].calls:
        steps.append(DemoStep(text="Done.\n"))
    return steps


def _with(step: DemoStep, verb: str, rest: str, recall: Callable[[], str]) -> DemoStep:
    match verb:
        case "/think":
            return replace(step, thought=f"{step.thought}{rest}\n")
        case "/say":
            return replace(step, text=f"{step.text}{rest}\n")
        case "/recall":
            return replace(step, text=f"{step.text}{recall()}\n")
        case "/wait":
            return replace(step, wait_seconds=_number(rest))
        case "/stop" if rest in ("length", "refusal"):
            return replace(step, stop=cast("Literal['length', 'refusal']", rest))
        case "/fail" if rest in FAILURES:
            return replace(step, failure=rest)
        case "/tool" | "/also":
            return _with_call(step, rest)
        case _:
            return replace(step, text=f"{step.text}I do not understand: {verb} {rest}\n")


def _with_call(step: DemoStep, rest: str) -> DemoStep:
    name, _, written = rest.strip().partition(" ")
    try:
        arguments = decode_json(written or "{}")
    except JsonInvalid as error:
        return replace(step, text=f"{step.text}I cannot read the arguments of {name}: {error}\n")
    if not isinstance(arguments, dict):
        return replace(step, text=f"{step.text}The arguments of {name} must be an object.\n")
    return replace(step, calls=(*step.calls, (name, arguments)))


def _number(text: str) -> float:
    try:
        return max(float(text), 0.0)
    except ValueError:
        return 0.0

"""What one agent can do: each ability is tried with a hub, in a session of its own."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from tests.cli.kit import Console, RunningHub
from tests.real_agents.agents import RealAgent
from tests.real_agents.model_server import AFTER, BEFORE, WRITTEN

Json = dict[str, Any]

TURN_SECONDS: Final = 90.0
CANCEL_SECONDS: Final = 45.0
"""A cancelled turn must end in this time."""
LEFT_SECONDS: Final = 15.0
"""Processes must be gone in this time."""
_PAUSE: Final = 0.05
_ENDED: Final = ("done", "failed", "cancelled", "interrupted")
_LONG: Final = 400  # words: twelve seconds
_UNSTREAMED_SECONDS: Final = 6.0
_SLEEPER: Final = "sleep 987"
_RISKY: Final = "mkdir -p gone && rm -rf gone; printf 'out-%s\\n' 42; touch made-by-shell"
"""A command that every agent with permission requests asks for; its output is not in its text."""
_OUTPUT: Final = "out-42"


class Failed(Exception):
    """An ability that the agent does not have; the text is what happened instead."""


def _expect(is_so: object, what: str) -> None:
    if not is_so:
        raise Failed(what)


class Turn:
    """A prompt that was sent."""

    def __init__(self, state: Json, asked: list[Json]) -> None:
        self.state = str(state["state"])
        self.asked = asked
        error = state.get("error") or {}
        reason = f" {state['stopReason']}" if state.get("stopReason") else ""
        message = f": {str(error['message'])[:160]}" if error.get("message") else ""
        self.words = f"{self.state}{reason}{message}"


class Trial:
    """An agent in a hub, and the abilities that are tried in it."""

    def __init__(self, agent: RealAgent, desk: Console) -> None:
        self.session_id = ""
        """The session of the ability that is tried."""
        self._agent, self._desk = agent, desk
        self._hub: RunningHub
        self._runner = ExitStack()
        self._front = ExitStack()
        self._keys = 0

    # ---- the hub ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._runner.enter_context(self._desk.runner())
        self._start_hub()

    def _start_hub(self) -> None:
        self._hub = self._front.enter_context(self._desk.up())

    def stop(self) -> None:
        self._front.close()
        self._runner.close()
        self._desk.end_runner()

    def kill_hub(self) -> None:
        self._hub.process.kill()
        self._hub.process.wait()
        self._front.close()

    def events(self) -> list[Json]:
        """Return the log of the session."""
        found: list[Json] = []
        while True:
            after = found[-1]["seq"] if found else 0
            path = f"/api/sessions/{self.session_id}/history?from_seq={after}&limit=1000"
            page = self._hub.call("GET", path)["events"]
            if not page:
                return found
            found += page

    # ---- abilities -------------------------------------------------------------------------------

    def plain(self) -> None:
        self._open()
        self._answers("[say alpha]", "The word is alpha.")

    def second_prompt(self) -> None:
        self._answers("[recall]", "The words were: alpha.")

    def write_allowed(self) -> None:
        made = self._desk.work / "written"
        turn = self._asked_turn(f"[write {made}]", "allow_once", made)
        text = made.read_text() if made.exists() else ""
        _expect(text.strip() == WRITTEN.strip(), f"no file; the turn {turn.words}")

    def write_rejected(self) -> None:
        made = self._desk.work / "not-written"
        self._asked_turn(f"[write {made}]", "reject_once", made)
        _expect(not made.exists(), "the rejected file was written")

    def shell_allowed(self) -> None:
        made = self._desk.work / "made-by-shell"
        turn = self._asked_turn(f"[run {_RISKY}]", "allow_once", made)
        _expect(made.exists(), f"the command did not run; the turn {turn.words}")

    def output_shown(self) -> None:
        self._open()
        turn = self._turn(f"[run {_RISKY}]", "allow_once")
        _expect(_OUTPUT in self._shown(), f"the log has no output; the turn {turn.words}")

    def shell_rejected(self) -> None:
        made = self._desk.work / "made-by-shell"
        made.unlink(missing_ok=True)
        self._asked_turn(f"[run {_RISKY}]", "reject_once", made)
        _expect(not made.exists(), "the rejected command ran")

    def edit_with_diff(self) -> None:
        edited = self._desk.work / "edited.txt"
        edited.write_text(f"{BEFORE}\n")
        self._open()
        turn = self._turn(f"[edit {edited}]", "allow_once")
        _expect(AFTER in edited.read_text(), f"the file is as it was; the turn {turn.words}")
        diff = rf"^\s*-\s*{BEFORE}$.*^\s*\+\s*{AFTER}$"
        _expect(re.search(diff, self._shown(), re.MULTILINE | re.DOTALL), "no diff is shown")

    def cancel_pending(self) -> None:
        self._open()
        prompt = f"[write {self._desk.work}/never]" if self._agent.asks_for_edits else ""
        key = self._send(prompt or f"[run {_RISKY}]")
        self._until(lambda: bool(self._pending()), key, "the agent did not ask")
        self._cancelled(key)
        _expect(not self._pending(), "the request is still pending")
        _expect(not (self._desk.work / "never").exists(), "the file was written")
        self._goes_on()

    def cancel_streaming(self) -> None:
        self._open()
        key = self._send(f"[tell {_LONG}]")
        self._until(self._is_answering(), key, "the answer did not begin")
        self._cancelled(key)
        self._goes_on()

    def cancel_running(self) -> None:
        begun = self._desk.work / "begun"
        begun.unlink(missing_ok=True)
        self._open()
        key = self._send(f"[run touch begun; {_SLEEPER}]")
        self._until(begun.exists, key, "the command did not start", "allow_once")
        self._cancelled(key)
        self._goes_on()
        left = self._wait_for_none(lambda: [line for line in self._lines() if _SLEEPER in line])
        _expect(not left, "the cancelled command still runs")

    def agent_killed(self) -> None:
        self._open()
        self._answers("[say alpha]", "The word is alpha.")
        key = self._send(f"[tell {_LONG}]")
        self._until(self._is_answering(), key, "the answer did not begin")
        for number in self._processes():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        turn = self._wait(key, seconds=CANCEL_SECONDS)
        _expect(turn.state == "failed", f"the turn of a killed agent {turn.words}")
        self._answers("[recall]", "The words were: alpha.")

    def hub_killed(self) -> None:
        """Kill the hub in the middle of a turn, which must not notice it."""
        self._open()
        words = _LONG
        key = self._send(f"[tell {words}]")
        self._until(self._is_answering(), key, "the answer did not begin")
        before = self._processes()
        self.kill_hub()
        self._start_hub()
        turn = self._wait(key)
        _expect(turn.state == "done", f"the turn {turn.words}")
        told = re.findall(r"word-(\d+)", self._said())
        _expect(told == [str(each) for each in range(words)], "words were lost or doubled")
        _expect(set(before) & set(self._processes()), "the agent was started anew")

    def runner_killed(self) -> None:
        """Kill the hub and the runner, as when the computer is switched off."""
        self._open()
        self._answers("[say alpha]", "The word is alpha.")
        self.kill_hub()
        self._runner_process().kill()
        left = self._wait_for_none(lambda: [str(each) for each in self._processes()])
        _expect(not left, "processes of the agent outlived their runner")
        self._runner.close()
        self.start()
        self._answers("[recall]", "The words were: alpha.")

    def nothing_left(self) -> None:
        """Stop the hub and the runner; must be tried last."""
        self.stop()
        left = self._wait_for_none(self._lines)
        _expect(not left, f"processes are left: {'; '.join(left)[:200]}")

    # ---- turns -----------------------------------------------------------------------------------

    def _open(self) -> None:
        given = {"agent": self._agent.name, "cwd": str(self._desk.work)}
        self.session_id = self._hub.call("POST", "/api/sessions", given)["sessionId"]
        path = f"/api/sessions/{self.session_id}"
        for name, value in self._agent.options:
            self._hub.call("PUT", f"{path}/options", {"configId": name, "value": value})
        if self._agent.mode is not None:
            self._hub.call("PUT", f"{path}/mode", {"modeId": self._agent.mode})

    def _send(self, prompt: str) -> str:
        self._keys += 1
        key = f"{self.session_id[:40]}-{self._keys}"
        path = f"/api/sessions/{self.session_id}/prompts"
        self._hub.call("POST", path, {"key": key, "prompt": prompt})
        return key

    def _turn(self, prompt: str, answer: str | None = None) -> Turn:
        return self._wait(self._send(prompt), answer)

    def _wait(self, key: str, answer: str | None = None, seconds: float = TURN_SECONDS) -> Turn:
        turn = self._follow(key, answer, lambda: False, seconds)
        _expect(turn is not None, f"the turn had not ended after {seconds:.0f} s")
        assert turn is not None
        return turn

    def _until(
        self, is_so: Callable[[], bool], key: str, otherwise: str, answer: str | None = None
    ) -> None:
        """Wait for something to happen in a turn."""
        turn = self._follow(key, answer, is_so, TURN_SECONDS)
        _expect(is_so(), f"{otherwise}; the turn {'goes on' if turn is None else turn.words}")

    def _follow(
        self, key: str, answer: str | None, is_so: Callable[[], bool], seconds: float
    ) -> Turn | None:
        """Answer requests until the turn has ended, or something is so; None if it runs then."""
        asked: dict[str, Json] = {}
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            path = f"/api/sessions/{self.session_id}/prompts/{key}"
            state = self._hub.call("GET", path)
            for request in self._pending():
                if request["requestId"] not in asked and answer is not None:
                    self._answer(request, answer)
                asked[request["requestId"]] = request
            if state["state"] in _ENDED:
                return Turn(state, list(asked.values()))
            if is_so():
                return None
            time.sleep(_PAUSE)
        return None

    def _answer(self, request: Json, answer: str) -> None:
        """Answer as wanted, or with the nearest that the agent offers."""
        offered = [each["kind"] for each in request["options"]]
        near = {"reject_once": "reject_always", "allow_once": "allow_always"}[answer]
        kind = answer if answer in offered else near
        _expect(kind in offered, f"the agent offers no {answer.replace('_', ' ')}")
        with suppress(AssertionError):  # the agent may have withdrawn it meanwhile
            self._hub.answer(request, kind)

    def _asked_turn(self, prompt: str, answer: str, made: Path) -> Turn:
        """Run a turn in which the agent must ask before it makes a file."""
        self._open()
        key = self._send(prompt)
        self._until(lambda: bool(self._pending()), key, "the agent did not ask")
        _expect(not made.exists(), "it was done before the answer")
        return self._wait(key, answer)

    def _cancelled(self, key: str) -> None:
        self._hub.call("POST", f"/api/sessions/{self.session_id}/cancel", {})
        turn = self._wait(key, seconds=CANCEL_SECONDS)
        _expect(turn.state == "cancelled", f"the cancelled turn {turn.words}")

    def _goes_on(self) -> None:
        self._answers("[say omega]", "The word is omega.")

    def _answers(self, prompt: str, words: str) -> None:
        before = len(self.events())
        turn = self._turn(prompt)
        _expect(turn.state == "done", f"the turn {turn.words}")
        _expect(words in self._said(before), f"the answer is not {words!r}")

    def _is_answering(self) -> Callable[[], bool]:
        """Return whether the answer is in the middle; one that is not streamed is after a while."""
        soon = time.monotonic() + _UNSTREAMED_SECONDS
        return lambda: "word-1 " in self._said() or time.monotonic() > soon

    # ---- looking ---------------------------------------------------------------------------------

    def _pending(self) -> list[Json]:
        requests = self._hub.call("GET", "/api/permissions")["permissions"]
        return [each for each in requests if each["sessionId"] == self.session_id]

    def _said(self, after: int = 0) -> str:
        chunks = [each for each in self.events()[after:] if each["type"] == "agent-message-chunk"]
        return "".join(each["payload"]["content"].get("text", "") for each in chunks)

    def _shown(self) -> str:
        return self._desk.run("show", self.session_id).stdout

    def _runner_process(self) -> Any:
        assert self._hub.runner is not None
        return self._hub.runner

    def _processes(self) -> dict[int, str]:
        """Return the agent's processes: those with its home, but not the hub's folder."""
        home, ours = f"HOME={self._desk.folder}".encode(), b"QUARTERDECK_HOME="
        found = {}
        for number in (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()):
            with suppress(OSError):
                folder = Path("/proc", str(number))
                variables = folder.joinpath("environ").read_bytes().split(b"\0")
                if home in variables and not any(each.startswith(ours) for each in variables):
                    line = folder.joinpath("cmdline").read_bytes().replace(b"\0", b" ")
                    found[number] = line.decode(errors="replace")
        return found

    def _lines(self) -> list[str]:
        return list(self._processes().values())

    def _wait_for_none(self, found: Callable[[], list[str]]) -> list[str]:
        """Return what is left of something that ends."""
        deadline = time.monotonic() + LEFT_SECONDS
        while (left := found()) and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        return left


ABILITIES: Final[Mapping[str, Callable[[Trial], None]]] = {
    "plain": Trial.plain,
    "second prompt": Trial.second_prompt,
    "write allowed": Trial.write_allowed,
    "write rejected": Trial.write_rejected,
    "shell allowed": Trial.shell_allowed,
    "shell rejected": Trial.shell_rejected,
    "output shown": Trial.output_shown,
    "edit with diff": Trial.edit_with_diff,
    "cancel pending": Trial.cancel_pending,
    "cancel streaming": Trial.cancel_streaming,
    "cancel running": Trial.cancel_running,
    "agent killed": Trial.agent_killed,
    "hub killed": Trial.hub_killed,
    "runner killed": Trial.runner_killed,
    "nothing left": Trial.nothing_left,
}
"""What is tried, in this order."""

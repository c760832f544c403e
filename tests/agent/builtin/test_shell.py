"""Running commands: permitted, streamed, bounded, and ended with everything they started."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from tests.agent.builtin.driver import ALLOW, at_work, setup_for, texts_of
from tests.agent.support import PATIENCE

pytestmark = pytest.mark.anyio


STUBBORN = """
trap '' TERM
setsid sh -c 'trap "" TERM; echo $$ > background; while :; do sleep 1; done' &
until [ -s background ]; do sleep 0.01; done
echo $$ > pid
echo ready
while :; do sleep 1; done
"""


def shell(command: str, **more: object) -> str:
    return json.dumps({"command": command, **more})


async def test_a_command_is_shown_permitted_and_run_in_the_sessions_folder(
    tmp_path: Path,
) -> None:
    async with at_work(tmp_path) as driver:
        permissions = driver.answer_permissions(ALLOW)
        done = await driver.use("shell", shell("pwd; echo wrong >&2; exit 3"))
    assert permissions[0]["toolCall"]["kind"] == "execute"
    assert texts_of(permissions[0]["toolCall"]) == "```sh\npwd; echo wrong >&2; exit 3\n```"
    assert done["status"] == "failed"
    assert done["rawOutput"] == {"exitCode": 3}
    assert texts_of(done) == f"```console\n{tmp_path}\nwrong\n```"


async def test_output_is_shown_while_it_grows(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    async with at_work(tmp_path) as driver:
        script = f"echo first; mkfifo {pipe}; cat {pipe}; echo last"
        prompt_id = await driver.hand.ask_prompt(driver.session_id, f"/tool shell {shell(script)}")
        await driver.hand.came(lambda each: "first\\n```" in json.dumps(each))
        await anyio.to_thread.run_sync(pipe.write_text, "middle\n")
        await driver.hand.answered(prompt_id)
        assert texts_of(driver.hand.updates("tool_call_update")[-1]) == (
            "```console\nfirst\nmiddle\nlast\n```"
        )


@pytest.mark.slow
async def test_a_command_that_takes_too_long_ends_with_all_it_started(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        done = await driver.use("shell", shell(STUBBORN, timeout_seconds=3))
        assert done["status"] == "failed"
        assert "longer than 3 s" in done["rawOutput"]
        assert await _ended(tmp_path)


async def test_a_cancelled_turn_ends_its_command_and_answers_at_once(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        prompt_id = await driver.hand.ask_prompt(
            driver.session_id, f"/tool shell {shell(STUBBORN)}"
        )
        await driver.hand.came(lambda each: "ready\\n```" in json.dumps(each))
        await driver.hand.notify("session/cancel", sessionId=driver.session_id)
        answer = await driver.hand.answered(prompt_id)
        assert answer["result"] == {"stopReason": "cancelled"}
        last = driver.hand.updates("tool_call_update")[-1]
        assert last["status"] == "failed"
        assert "content" not in last, "what the command had said would be taken away"
        assert "while this was running" in last["rawOutput"]
        assert await _ended(tmp_path)


async def _ended(folder: Path) -> bool:
    """Return whether all that wrote down its number has ended; wait a little for it."""
    pids = [int((folder / name).read_text()) for name in ("pid", "background")]
    with anyio.move_on_after(PATIENCE):
        while any(map(_lives, pids)):  # noqa: ASYNC110 - nothing reports it
            await anyio.sleep(0.01)
    return not any(map(_lives, pids))


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_much_output_is_cut_and_marked(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        done = await driver.use("shell", shell("yes é | head -c 300000"))
    assert len(texts_of(done).encode()) < 70_000
    assert "\N{REPLACEMENT CHARACTER}" not in texts_of(done)


async def test_keys_of_providers_are_not_in_a_commands_environment(tmp_path: Path) -> None:
    setup = setup_for({"OPENAI_API_KEY": "sk-secret", "EDITOR": "vi"})
    async with at_work(tmp_path, setup) as driver:
        done = await driver.use("shell", shell("env"))
    assert "sk-secret" not in texts_of(done)
    assert "EDITOR=vi" in texts_of(done)


async def test_a_client_with_terminals_runs_the_command(tmp_path: Path) -> None:
    async with at_work(tmp_path, capabilities={"terminal": True}) as driver:
        calls: list[str] = []

        def answer(name: str, result: object) -> None:
            def note(_params: object) -> object:
                calls.append(name)
                return result

            driver.hand.answers[f"terminal/{name}"] = note

        answer("create", {"terminalId": "term-1"})
        answer("wait_for_exit", {"exitCode": 0, "signal": None})
        answer(
            "output",
            {"output": "hello", "truncated": False, "exitStatus": {"exitCode": 0, "signal": None}},
        )
        answer("release", {})
        done = await driver.use("shell", shell("echo hello"))
    assert done["status"] == "completed"
    assert done["content"] == [{"type": "terminal", "terminalId": "term-1"}]
    assert calls == ["create", "wait_for_exit", "output", "release"]

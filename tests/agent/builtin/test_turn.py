"""Turns of the built-in agent, by the demo model: limits, failures, cancelling, compaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.builtin.driver import at_work, setup_for, texts_of

pytestmark = pytest.mark.anyio


async def test_the_tour_shows_every_kind_of_update(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        answer = await driver.say("Give me a tour, please")
        assert answer["result"] == {"stopReason": "end_turn"}
        kinds = {each["sessionUpdate"] for each in driver.hand.updates()}
        assert kinds == {
            "agent_message_chunk",
            "agent_thought_chunk",
            "available_commands_update",
            "plan",
            "session_info_update",
            "tool_call",
            "tool_call_update",
            "usage_update",
        }
        plan = driver.hand.updates("plan")[-1]
        assert {entry["status"] for entry in plan["entries"]} == {"completed"}
        title = driver.hand.updates("session_info_update")[0]["title"]
        assert title == "Give me a tour, please"
    assert (tmp_path / "quarterdeck-demo.txt").read_text() == "Quarterdeck\nkeeps a good watch.\n"


@pytest.mark.parametrize("mode", ["read-only", "safe", "sandbox"])
async def test_the_tour_continues_without_what_a_mode_forbids(tmp_path: Path, mode: str) -> None:
    async with at_work(tmp_path) as driver:
        await driver.set_mode(mode)
        assert (await driver.say("a tour"))["result"] == {"stopReason": "end_turn"}
        assert "That was the tour" in driver.text
    assert (tmp_path / "quarterdeck-demo.txt").exists() is (mode == "safe")


async def test_the_title_is_what_was_written_not_what_was_attached(tmp_path: Path) -> None:
    file = {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "attached"}}
    async with at_work(tmp_path) as driver:
        await driver.hand.call(
            "session/prompt",
            sessionId=driver.session_id,
            prompt=[file, {"type": "text", "text": "What is this?"}],
        )
        assert driver.hand.updates("session_info_update")[0]["title"] == "What is this?"


async def test_white_space_is_kept_exactly(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        await driver.say("/say   two  spaces\n/say \n/say end")
        assert driver.text == "  two  spaces\n\nend\n"


@pytest.mark.parametrize(("word", "reason"), [("length", "max_tokens"), ("refusal", "refusal")])
async def test_a_model_that_stops_early_gives_the_reason(
    tmp_path: Path, word: str, reason: str
) -> None:
    async with at_work(tmp_path) as driver:
        assert (await driver.say(f"/say half\n/stop {word}"))["result"] == {"stopReason": reason}


async def test_a_call_in_an_answer_that_was_cut_is_not_run(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        answer = await driver.say('/stop length\n/tool write {"path": "a", "content": "x"}')
        assert answer["result"] == {"stopReason": "max_tokens"}
        assert driver.hand.updates("tool_call_update")[-1]["status"] == "failed"
        assert (await driver.say("/say on"))["result"] == {"stopReason": "end_turn"}
    assert not (tmp_path / "a").exists()


async def test_a_turn_has_a_limited_number_of_steps(tmp_path: Path) -> None:
    async with at_work(tmp_path, setup_for(max_steps=2)) as driver:
        answer = await driver.say("/tool list {}\n/tool list {}\n/tool list {}")
        assert answer["result"] == {"stopReason": "max_turn_requests"}
        assert len(driver.hand.updates("tool_call")) == 2


@pytest.mark.parametrize("reason", ["authentication", "not_found", "malformed", "quota"])
async def test_a_failing_model_is_an_error_with_a_sentence_and_never_a_silent_end(
    tmp_path: Path, reason: str
) -> None:
    async with at_work(tmp_path) as driver:
        answer = await driver.say(f"/fail {reason}")
        assert answer["error"]["code"] == -32603
        assert answer["error"]["message"] == f"the script made the demo model fail: {reason}"
        assert answer["error"]["data"] == {"reason": reason}
        assert (await driver.say("/recall"))["result"] == {"stopReason": "end_turn"}
        assert "I remember 1 prompts" in driver.text


async def test_a_prompt_that_the_provider_rejects_does_not_spoil_the_next(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        await driver.say("/say first")
        assert "error" in await driver.say("/fail rejected")
        await driver.say("/recall")
        assert "I remember 1 prompts; the first was: /say first" in driver.text


@pytest.mark.parametrize("prompt", ["", " \n "])
async def test_an_empty_prompt_is_refused(tmp_path: Path, prompt: str) -> None:
    async with at_work(tmp_path) as driver:
        assert (await driver.say(prompt))["error"]["code"] == -32602


async def test_an_empty_answer_is_an_error_and_is_not_remembered(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        answer = await driver.say("/think about it")
        assert "gave an empty answer" in answer["error"]["message"]
        assert (await driver.say("/tool list {}\n/think silently"))["result"] == {
            "stopReason": "end_turn"
        }


async def test_a_failure_that_may_pass_is_tried_again_and_the_user_sees_it(tmp_path: Path) -> None:
    async with at_work(tmp_path, setup_for(retries=2, max_retry_seconds=0.01)) as driver:
        answer = await driver.say("/fail server")
        assert "error" in answer
        thoughts = [each["content"]["text"] for each in driver.hand.updates("agent_thought_chunk")]
        assert len(thoughts) == 2
        assert "retrying" in thoughts[0]


async def test_a_silent_model_is_given_up(tmp_path: Path) -> None:
    async with at_work(tmp_path, setup_for(stall_seconds=0.05)) as driver:
        answer = await driver.say("/wait 1000\n/say never")
        assert "sent nothing for 0.05 s" in answer["error"]["message"]


async def test_a_turn_is_cancelled_while_the_model_is_silent(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        prompt_id = await driver.hand.ask_prompt(
            driver.session_id, "/tool list {}\n/wait 1000\n/say never"
        )
        await driver.hand.came(lambda each: "usage_update" in str(each))
        await driver.hand.notify("session/cancel", sessionId=driver.session_id)
        assert (await driver.hand.answered(prompt_id))["result"] == {"stopReason": "cancelled"}
        assert (await driver.say("/recall"))["result"] == {"stopReason": "end_turn"}


async def test_turns_of_two_sessions_run_at_the_same_time(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        waiting = await driver.hand.ask_prompt(driver.session_id, "/wait 1000\n/say never")
        other = await driver.hand.open_session(cwd=str(tmp_path))
        assert (await driver.hand.prompt(other, "/say hi"))["result"] == {"stopReason": "end_turn"}
        await driver.hand.notify("session/cancel", sessionId=driver.session_id)
        await driver.hand.answered(waiting)


async def test_a_long_history_is_compacted_before_it_fills_the_window(tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("many words\n" * 200)
    async with at_work(tmp_path, setup_for(context_window=3000)) as driver:
        for number in range(6):
            answer = await driver.say(f'/say {number}\n/tool read {{"path": "big.txt"}}\n/say done')
            assert answer["result"] == {"stopReason": "end_turn"}
        thoughts = "".join(e["content"]["text"] for e in driver.hand.updates("agent_thought_chunk"))
        assert "[compacted from about" in thoughts
        assert all(each["used"] < 3000 for each in driver.hand.updates("usage_update"))


async def test_the_initial_message_of_the_server_comes_first(tmp_path: Path) -> None:
    async with at_work(tmp_path, initial_message="/say from the start") as driver:
        await driver.say("/say from the user")
        assert driver.text == "from the start\nfrom the user\n"
        await driver.say("/say again")
        assert driver.text.endswith("from the user\nagain\n")


async def test_plan_makes_a_plan_and_may_change_nothing(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        script = '/plan it\n/tool write {"path": "a", "content": "x"}'
        assert (await driver.say(script))["result"] == {"stopReason": "end_turn"}
        failed = driver.hand.updates("tool_call_update")[-1]
        assert "there is no tool write" in texts_of(failed)
        await driver.say("/plan")
        assert "Describe the task" in driver.text
    assert not (tmp_path / "a").exists()


async def test_clear_lets_the_model_forget(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        await driver.say("/say one")
        await driver.say("/clear")
        await driver.say("/recall")
        assert driver.text.endswith("I remember nothing.\n")


async def test_compact_leaves_a_summary(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        await driver.say("/compact")
        assert "nothing to compact" in driver.text
        await driver.say("/say the first thing")
        await driver.say("/compact")
        await driver.say("/recall")
        assert "I remember 1 prompts; the first was: [Summary of the conversation" in driver.text
        assert "/say the first thing" in driver.text


async def test_tools_are_named(tmp_path: Path) -> None:
    async with at_work(tmp_path) as driver:
        await driver.set_mode("read-only")
        await driver.say("/tools")
        assert "- `read` (read)" in driver.text
        assert "- `fetch` (fetch; asks first)" in driver.text
        assert "shell" not in driver.text


async def test_another_model_can_be_chosen_if_it_can_be_used(tmp_path: Path) -> None:
    setup = setup_for(models=("openai:gpt-5",))
    async with at_work(tmp_path, setup) as driver:
        choice = {"sessionId": driver.session_id, "configId": "model"}
        error = await driver.hand.error("session/set_config_option", **choice, value="openai:gpt-5")
        assert "OPENAI_API_KEY" in error["message"]
        await driver.hand.result("session/set_config_option", **choice, value="demo")

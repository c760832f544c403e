"""Models of providers, by their real wire formats, against a server of our own."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.agent import SessionStore
from quarterdeck.agent.builtin import Provider
from tests.agent.builtin.driver import SessionDriver, at_work, setup_for
from tests.agent.builtin.fake_provider import Answer, FakeProvider, Refusal, fake_provider

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

KEY = "sk-secret-7c1e"
KINDS = ("openai", "anthropic", "google")


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as running:
        yield running


def configured(provider: FakeProvider, kind: str, **settings: Any) -> Any:
    # Before anyone waits for an answer: on a busy machine this takes a while.
    importlib.import_module(f"pydantic_ai.models.{kind}")
    base = f"{provider.url}/v1" if kind == "openai" else provider.url
    own = Provider(kind=kind, base_url=base, api_key_env="OPENAI_API_KEY")
    return setup_for(
        {"OPENAI_API_KEY": KEY},
        model="local:fake",
        providers={"local": own},
        **{"max_retry_seconds": 0.3, **settings},
    )


async def failure(driver: SessionDriver, text: str = "hello") -> str:
    answer = await driver.say(text)
    assert "error" in answer, answer
    assert answer["error"]["code"] == -32603
    assert KEY not in str(driver.hand.messages)
    message: str = answer["error"]["message"]
    return message


@pytest.mark.parametrize("kind", KINDS)
async def test_text_and_thoughts_are_streamed_as_they_were_written(
    provider: FakeProvider, tmp_path: Path, kind: str
) -> None:
    provider.will(Answer(text="  two words \n and more ", thought="hm, so"))
    async with at_work(tmp_path, configured(provider, kind)) as driver:
        assert (await driver.say("hello"))["result"] == {"stopReason": "end_turn"}
        assert driver.text == "  two words \n and more "
        thoughts = driver.hand.updates("agent_thought_chunk")
        assert "".join(each["content"]["text"] for each in thoughts) == "hm, so"
        usage = driver.hand.updates("usage_update")[-1]
        assert usage["used"] == 110


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tool_is_run_and_its_result_goes_back_to_the_model(
    provider: FakeProvider, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "a.txt").write_text("the secret of the file\n")
    provider.will(
        Answer(text="I look.", thought="look", calls=(("read", {"path": "a.txt"}),)),
        Answer(text="I saw it."),
    )
    async with at_work(tmp_path, configured(provider, kind)) as driver:
        assert (await driver.say("look"))["result"] == {"stopReason": "end_turn"}
        assert "the secret of the file" in str(provider.bodies[1])
        states = [each.get("status") for each in driver.hand.updates("tool_call_update")]
        assert states[-1] == "completed"


@pytest.mark.parametrize("kind", KINDS)
async def test_the_model_gets_its_history_in_the_next_turn(
    provider: FakeProvider, tmp_path: Path, kind: str
) -> None:
    provider.will(Answer(text="first answer", thought="t"), Answer(text="second answer"))
    async with at_work(tmp_path, configured(provider, kind)) as driver:
        await driver.say("first question")
        await driver.say("second question")
    body_text = str(provider.bodies[1])
    assert "first question" in body_text
    assert "first answer" in body_text


@pytest.mark.parametrize("kind", KINDS)
async def test_two_calls_in_one_answer_both_have_their_result(
    provider: FakeProvider, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "b.txt").write_text("beta")
    calls = (("read", {"path": "a.txt"}), ("read", {"path": "b.txt"}))
    provider.will(Answer(calls=calls), Answer(text="both"))
    async with at_work(tmp_path, configured(provider, kind)) as driver:
        assert (await driver.say("read both"))["result"] == {"stopReason": "end_turn"}
        assert len({each["toolCallId"] for each in driver.hand.updates("tool_call")}) == 2
    body_text = str(provider.bodies[1])
    assert "1\\talpha" in body_text
    assert "1\\tbeta" in body_text


@pytest.mark.parametrize("kind", KINDS)
async def test_a_loaded_session_sends_the_model_calls_results_and_pictures(
    provider: FakeProvider, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    store = SessionStore(tmp_path / "sessions")
    setup = configured(provider, kind)
    picture = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    words = {"type": "text", "text": "look at both"}
    read = ("read", {"path": "a.txt"})
    provider.will(Answer(thought="hm", calls=(read,)), Answer(text="seen"), Answer(text="again"))
    async with at_work(tmp_path, setup, store=store) as driver:
        first = driver.session_id
        await driver.hand.result("session/prompt", sessionId=first, prompt=[words, picture])
    async with at_work(tmp_path, setup, store=store) as driver:
        loaded = {"sessionId": first, "cwd": str(tmp_path), "mcpServers": []}
        await driver.hand.result("session/load", **loaded)
        answer = await driver.hand.prompt(first, "and now?")
        assert answer["result"] == {"stopReason": "end_turn"}
    body_text = str(provider.bodies[2])
    for part in ("look at both", "iVBORw0KGgo=", "1\\talpha", "seen", "and now?"):
        assert part in body_text


async def test_thoughts_go_back_to_anthropic_with_their_signature(
    provider: FakeProvider, tmp_path: Path
) -> None:
    provider.will(
        Answer(thought="deep", calls=(("list", {}),)),
        Answer(text="done"),
    )
    async with at_work(tmp_path, configured(provider, "anthropic")) as driver:
        await driver.say("hello")
    assert "c2lnbmVk" in str(provider.bodies[1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("stop", "reason"), [("length", "max_tokens"), ("refusal", "refusal")])
async def test_limits_and_refusals_have_their_own_stop_reason(
    provider: FakeProvider, tmp_path: Path, kind: str, stop: str, reason: str
) -> None:
    provider.will(Answer(text="half", stop=stop))
    async with at_work(tmp_path, configured(provider, kind)) as driver:
        assert (await driver.say("hello"))["result"] == {"stopReason": reason}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_bad_key_is_reported_without_the_key(
    provider: FakeProvider, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    provider.will(Refusal(401, f"Incorrect API key provided: {KEY}"))
    async with at_work(tmp_path, configured(provider, kind)) as driver:
        message = await failure(driver)
    assert KEY not in caplog.text
    assert "refused the key" in message
    assert "check the key" in message


@pytest.mark.parametrize("kind", KINDS)
async def test_an_unknown_model_is_named(provider: FakeProvider, tmp_path: Path, kind: str) -> None:
    provider.will(Refusal(404, "model not found", "model_not_found"))
    async with at_work(tmp_path, configured(provider, kind)) as driver:
        message = await failure(driver)
    assert "local:fake" in message
    assert "check the model's name" in message


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_that_was_too_early_is_repeated_when_the_provider_says(
    provider: FakeProvider, tmp_path: Path, kind: str
) -> None:
    provider.will(Refusal(429, "slow down", headers={"Retry-After": "0"}), Answer(text="now"))
    async with at_work(tmp_path, configured(provider, kind)) as driver:
        assert (await driver.say("hello"))["result"] == {"stopReason": "end_turn"}
        assert driver.text == "now"
    assert len(provider.bodies) == 2


async def test_a_wait_that_is_too_long_is_left_to_the_user(
    provider: FakeProvider, tmp_path: Path
) -> None:
    provider.will(Refusal(429, "slow down", headers={"Retry-After": "3600"}))
    async with at_work(tmp_path, configured(provider, "openai")) as driver:
        assert "too many requests" in await failure(driver)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_provider_that_keeps_failing_is_tried_a_few_times_only(
    provider: FakeProvider, tmp_path: Path, kind: str
) -> None:
    provider.will(*[Refusal(500, "oh no")] * 3)
    async with at_work(tmp_path, configured(provider, kind, retries=2)) as driver:
        message = await failure(driver)
    assert "the provider failed" in message
    assert len(provider.bodies) == 3


@pytest.mark.parametrize("cut", ["closed", "too short", "unfinished", "reset"])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_that_breaks_off_is_an_error_and_what_was_said_is_kept(
    provider: FakeProvider, tmp_path: Path, kind: str, cut: Any
) -> None:
    provider.will(Answer(text="half of it and no more", cut=cut), Answer(text="again"))
    async with at_work(tmp_path, configured(provider, kind)) as driver:
        message = await failure(driver)
        assert "the answer broke off" in message
        assert message.endswith("send the prompt again")
        assert driver.text.startswith("half of it")
        assert (await driver.say("go on"))["result"] == {"stopReason": "end_turn"}
    assert "half of it" in str(provider.bodies[-1])


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_that_is_no_json_is_an_error(
    provider: FakeProvider, tmp_path: Path, kind: str
) -> None:
    provider.will(Answer(text="some text", garbage=b'{"choices": [{"del'))
    async with at_work(tmp_path, configured(provider, kind)) as driver:
        assert "the answer could not be read" in await failure(driver)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_provider_that_stalls_is_given_up(
    provider: FakeProvider, tmp_path: Path, kind: str
) -> None:
    provider.will(Answer(text="half of it", stalls=True))
    async with at_work(tmp_path, configured(provider, kind, stall_seconds=0.5)) as driver:
        assert "stall_seconds" in await failure(driver)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_turn_is_cancelled_while_the_provider_stalls(
    provider: FakeProvider, tmp_path: Path, kind: str
) -> None:
    provider.will(Answer(text="half of it", stalls=True), Answer(text="here"))
    async with at_work(tmp_path, configured(provider, kind)) as driver:
        prompt_id = await driver.hand.ask_prompt(driver.session_id, "hello")
        await driver.hand.came(lambda each: "agent_message_chunk" in str(each))
        await driver.hand.notify("session/cancel", sessionId=driver.session_id)
        answer = await driver.hand.answered(prompt_id)
        assert answer["result"] == {"stopReason": "cancelled"}
        assert (await driver.say("again"))["result"] == {"stopReason": "end_turn"}


async def test_a_provider_that_cannot_be_reached_is_reported(tmp_path: Path) -> None:
    with fake_provider() as gone:
        setup = configured(gone, "openai", retries=0)
    async with at_work(tmp_path, setup) as driver:
        assert "could not be reached" in await failure(driver)


@pytest.mark.parametrize("kind", KINDS)
async def test_arguments_that_are_no_json_go_back_to_the_model(
    provider: FakeProvider, tmp_path: Path, kind: str
) -> None:
    if kind == "google":  # its arguments are an object on the wire
        provider.will(Answer(calls=(("read", {"no": "path"}),)), Answer(text="sorry"))
    else:
        provider.will(Answer(calls=(("read", '{"path": "a.t'),)), Answer(text="sorry"))
    async with at_work(tmp_path, configured(provider, kind)) as driver:
        assert (await driver.say("hello"))["result"] == {"stopReason": "end_turn"}
        assert driver.hand.updates("tool_call_update")[-1]["status"] == "failed"
    assert "read" in str(provider.bodies[1])


async def test_a_history_that_is_too_long_is_compacted_once(
    provider: FakeProvider, tmp_path: Path
) -> None:
    too_long = Refusal(400, "maximum context length is 8192 tokens", "context_length_exceeded")
    provider.will(Answer(text="first"), too_long, Answer(text="the summary"), Answer(text="second"))
    async with at_work(tmp_path, configured(provider, "openai")) as driver:
        await driver.say("one " * 20)
        assert (await driver.say("two"))["result"] == {"stopReason": "end_turn"}
    assert "the summary" in str(provider.bodies[3]["messages"])


async def test_a_picture_reaches_the_model(provider: FakeProvider, tmp_path: Path) -> None:
    provider.will(Answer(text="a picture"))
    picture = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    async with at_work(tmp_path, configured(provider, "openai")) as driver:
        await driver.hand.result("session/prompt", sessionId=driver.session_id, prompt=[picture])
    assert "data:image/png;base64,iVBORw0KGgo=" in str(provider.bodies[0])


async def test_without_the_packages_their_name_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "quarterdeck.agent.builtin.pydantic_model", None)
    async with at_work(tmp_path, setup_for(model="ollama:x")) as driver:
        assert "pip install 'quarterdeck[agent]'" in await failure(driver)


async def test_without_a_key_the_variable_to_set_is_named(tmp_path: Path) -> None:
    async with at_work(tmp_path, setup_for(model="openai:gpt-5")) as driver:
        assert "OPENAI_API_KEY" in await failure(driver)

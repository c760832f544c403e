"""`RunnerApi` carries plain data: the hub works over a runner that copies it all through JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import anyio
import msgspec
import pytest

from quarterdeck.host import Host
from quarterdeck.policy import Policy, Rule
from quarterdeck.runner import RunnerApi, RunnerOptions
from quarterdeck.views.context import SendMessageCommand
from tests.hub import test_hub as hub_cases
from tests.hub.api import (
    test_agents as agents,
    test_files as files,
    test_folders as folders,
    test_mcp_servers as mcp_servers,
    test_optional as optional,
    test_prompts as prompts,
    test_transcript as transcript,
)
from tests.hub.api.kit import PATIENCE, options, scripted
from tests.hub.editors import test_access as editors
from tests.hub.push import test_push as push
from tests.hub.streams import test_hub as streams
from tests.runner.copying import API, CROSSED, SUBSCRIPTIONS, CopyingRunner, copied
from tests.runner.permissions import test_inbox as inbox
from tests.runner.sessions import test_deletion as deletion, test_titles as titles

Case = Callable[[Path], Awaitable[None]]

CASES: list[Case] = [
    hub_cases.test_the_state_at_every_event_is_the_fold_of_the_events_up_to_it,
    hub_cases.test_history_comes_in_pages_as_it_is_stored,
    hub_cases.test_metrics_count_what_is_there,
    agents.test_sessions_of_a_known_agent_share_one_process,
    agents.test_an_agent_that_is_not_installed_is_refused_with_the_reason,
    agents.test_an_agent_started_by_command_comes_back_after_a_restart,
    agents.test_an_agent_that_is_ended_leaves_its_sessions_disconnected,
    agents.test_options_go_to_the_agent,
    files.test_files_are_found_by_letters_of_their_names,
    folders.test_folders_are_listed_without_files_and_hidden_ones,
    mcp_servers.test_servers_are_listed_with_the_folders_that_get_them,
    mcp_servers.test_a_session_gets_the_chosen_servers_and_one_of_its_own,
    optional.test_a_session_is_forked_and_listed_with_its_source,
    optional.test_a_closed_session_is_renamed_and_archived,
    optional.test_providers_are_passed_through_and_headers_are_nowhere,
    prompts.test_prompts_wait_are_changed_cancelled_and_run_in_order,
    prompts.test_a_key_that_was_used_for_another_prompt_is_refused,
    prompts.test_the_meta_of_a_prompt_is_for_those_who_may_choose_modes,
    transcript.test_a_turn_is_shown_in_the_order_in_which_it_happened,
    editors.test_an_elicitation_is_answered_in_an_editor_that_can_show_forms,
    editors.test_modes_that_became_an_option_can_still_be_chosen_as_modes,
    editors.test_a_closed_session_is_loaded_again_and_a_deleted_one_is_gone,
    push.test_a_permission_request_is_pushed_with_its_url,
    push.test_the_end_of_a_turn_is_pushed,
    streams.test_a_stream_of_sessions_reports_changes_of_their_queues,
    streams.test_a_session_that_was_closed_before_the_hub_began_can_be_read,
    streams.test_a_denial_by_the_context_protocol_keeps_its_reason,
    inbox.test_a_request_is_shown_with_what_it_would_do_and_answered_once,
    inbox.test_an_answer_to_something_else_than_was_shown_is_refused,
    inbox.test_an_option_of_a_kind_that_is_no_text_can_be_chosen,
    inbox.test_a_policy_that_changes_decides_what_waits,
    titles.test_the_title_that_an_agent_gives_goes_before_the_first_prompt,
    deletion.test_other_sessions_keep_their_prompts_and_requests,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_the_hub_works_over_copies(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quarterdeck.hub.hub.Runner", CopyingRunner)
    CROSSED.clear()
    await case(tmp_path)
    assert CROSSED


async def test_what_no_case_calls_is_copied_too(tmp_path: Path) -> None:
    given = options(tmp_path / "home", mine=scripted({"say": "hello"})).runner
    with anyio.fail_after(PATIENCE):
        async with CopyingRunner(given) as runner:
            assert "mine" in {each.name for each in await runner.known_agents()}
            assert await runner.knows_agent("mine")
            session = await runner.create_session("mine", cwd=str(tmp_path))
            named = [each.agent.name for each in await runner.context_capabilities()]
            assert named.count("mine") == 1
            (shown,) = await runner.context_sessions([session.session_id, "another"])
            assert shown.facts.agent.name == "mine"
            command = SendMessageCommand(message="go")
            await runner.execute_context_command(session.session_id, command)
            async for event in runner.events(session.session_id):
                if event.type == "prompt-finished":
                    break
            assert runner.last_seq(session.session_id) >= event.seq
            assert await runner.stored_servers(session.session_id) == []
            runner.reconfigure(replace(given, policy=Policy(rule=(Rule(decision="deny"),))))
            assert runner.policy().rule[0].decision == "deny"


@pytest.mark.parametrize("name", API)
def test_every_argument_and_result_has_a_json_schema(name: str) -> None:
    for hint in get_type_hints(getattr(RunnerApi, name)).values():
        is_subscription = any(hint == each for each in SUBSCRIPTIONS)
        if not is_subscription and hint is not RunnerOptions:  # configuration has paths
            msgspec.json.schema(hint)


def test_an_object_of_the_host_does_not_cross() -> None:
    hint: Any = object
    with pytest.raises(TypeError):
        copied(Host(), hint)

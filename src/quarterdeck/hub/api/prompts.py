"""The prompt queue of a session."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Body,
    Endpoint,
    Query,
    invalid,
    json_endpoint,
)
from quarterdeck.hub.auth.device import Device
from quarterdeck.hub.hub import Hub
from quarterdeck.runner import META_SCOPE, PromptEntry, PromptMode, permitted_blocks

# No pattern here: msgspec 0.22 ends a program by a segmentation fault that has one in a union.
_Prompt = (
    Annotated[str, Meta(min_length=1)]
    | Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=1000)]
)


class SendPrompt(Body, frozen=True, kw_only=True):
    """A prompt; the same key again is the same prompt, and is run once."""

    key: Annotated[str, Meta(pattern="^[A-Za-z0-9_.:-]{1,128}$")]
    """Made by the client, a new one for each prompt."""
    prompt: _Prompt
    """A text, or content blocks of ACP."""
    mode: PromptMode = "queue"
    """ "interrupt" cancels the turn that runs and comes next; "steer" adds to the turn that another
    program runs in its own session."""


class EditPrompt(Body, frozen=True, kw_only=True):
    prompt: _Prompt


class PromptListQuery(Query, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class PromptList(ApiResponse, frozen=True, kw_only=True):
    """The last prompts that ran, the one that runs, and those that wait in their order."""

    prompts: list[PromptEntry]


def blocks_of(prompt: _Prompt) -> list[dict[str, Any]]:
    """Return the content blocks of a prompt.

    Raises:
        RequestRejected: if it is blank, or a block has no type.
    """
    if isinstance(prompt, str):
        if not prompt.strip():
            raise invalid("the prompt is blank; write what the agent should do")
        return [{"type": "text", "text": prompt}]
    for number, block in enumerate(prompt, 1):
        if not isinstance(block.get("type"), str):
            raise invalid(f'block {number} of the prompt has no type; a text has "type": "text"')
    return prompt


class _Prompts:
    def __init__(self, hub: Hub) -> None:
        self._runner = hub.runner

    async def send(self, request: ApiRequest) -> PromptEntry:
        wanted = request.body_as(SendPrompt)
        if wanted.key.endswith("\n"):  # which the pattern's $ accepts
            raise invalid("the key ends in a line break; leave it out")
        blocks, is_less = _permitted(wanted.prompt, request.by)
        entry = await self._runner.add_prompt(
            request.path["id"], wanted.key, blocks, mode=wanted.mode, by=request.by.actor
        )
        if is_less:
            self._report_removed_meta(request)
        return entry

    async def list(self, request: ApiRequest) -> PromptList:
        session = self._runner.session(request.path["id"])
        prompts = await self._runner.list_prompts(
            session.session_id, request.query_as(PromptListQuery).limit
        )
        return PromptList(prompts=prompts)

    async def get(self, request: ApiRequest) -> PromptEntry:
        return await self._runner.get_prompt(request.path["id"], request.path["key"])

    async def edit(self, request: ApiRequest) -> PromptEntry:
        blocks, is_less = _permitted(request.body_as(EditPrompt).prompt, request.by)
        session_id, key, author = request.path["id"], request.path["key"], request.by.actor
        entry = await self._runner.edit_prompt(session_id, key, blocks, by=author)
        if is_less:
            self._report_removed_meta(request)
        return entry

    async def cancel(self, request: ApiRequest) -> PromptEntry:
        return await self._runner.cancel_prompt(
            request.path["id"], request.path["key"], by=request.by.actor
        )

    def _report_removed_meta(self, request: ApiRequest) -> None:
        self._runner.report_removed_meta(
            request.path["id"], scope=request.by.scope, by=request.by.actor
        )


def _permitted(prompt: Any, by: Device) -> tuple[Any, bool]:
    return permitted_blocks(blocks_of(prompt), may_send_meta=by.may(META_SCOPE))


def prompt_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the prompts' part of the route table."""
    api = _Prompts(hub)
    return [
        *_one_prompt(api),
        json_endpoint(
            "prompt",
            "POST /api/sessions/{id}/prompts",
            api.send,
            "Send a prompt; it runs after those before it",
            body=SendPrompt,
            returns=PromptEntry,
            status=202,
            errors=(400, 404, 409, 429),
        ),
        json_endpoint(
            "view",
            "GET /api/sessions/{id}/prompts",
            api.list,
            "List the prompts of a session",
            query=PromptListQuery,
            returns=PromptList,
            errors=(400, 404),
        ),
    ]


def _one_prompt(api: _Prompts) -> list[Endpoint]:
    return [
        json_endpoint(
            "view",
            "GET /api/sessions/{id}/prompts/{key}",
            api.get,
            "Show a prompt and its result",
            returns=PromptEntry,
            errors=(404,),
        ),
        json_endpoint(
            "prompt",
            "PATCH /api/sessions/{id}/prompts/{key}",
            api.edit,
            "Change a queued prompt",
            body=EditPrompt,
            returns=PromptEntry,
            errors=(400, 404, 409),
        ),
        json_endpoint(
            "prompt",
            "DELETE /api/sessions/{id}/prompts/{key}",
            api.cancel,
            "Cancel a queued prompt",
            returns=PromptEntry,
            errors=(404, 409),
        ),
    ]

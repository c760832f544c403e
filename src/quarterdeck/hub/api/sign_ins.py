"""Signing in to agents. What a terminal shows is a reply to the device that asks, and is not kept.

Only devices with the scope `admin` sign in: the terminal runs programs, and shows links and codes.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Body,
    Endpoint,
    Query,
    json_endpoint,
)
from quarterdeck.hub.hub import Hub
from quarterdeck.runner import SignInMethod, SignInOutput, SignInState

_Text = Annotated[str, Meta(min_length=1, max_length=4096)]
_Size = Annotated[int, Meta(ge=10, le=500)]


class SignInMethods(ApiResponse, frozen=True, kw_only=True):
    methods: list[SignInMethod]


class BeginSignIn(Body, frozen=True, kw_only=True):
    method_id: _Text
    columns: _Size = 80
    rows: _Size = 24


class SignInInput(Body, frozen=True, kw_only=True):
    text: Annotated[str, Meta(max_length=4096)]


class OutputFrom(Query, frozen=True, kw_only=True):
    after: int = 0
    """The position up to which the output is known."""


class _SignIns:
    def __init__(self, hub: Hub) -> None:
        self._runner = hub.runner

    async def methods(self, request: ApiRequest) -> SignInMethods:
        name = request.path["name"]
        found = await self._runner.sign_in_methods(name, by=request.by.actor)
        return SignInMethods(methods=found)

    async def begin(self, request: ApiRequest) -> SignInState:
        wanted = request.body_as(BeginSignIn)
        return await self._runner.begin_sign_in(
            request.path["name"],
            wanted.method_id,
            columns=wanted.columns,
            rows=wanted.rows,
            by=request.by.actor,
        )

    async def output(self, request: ApiRequest) -> SignInOutput:
        after = request.query_as(OutputFrom).after
        return await self._runner.sign_in_output(request.path["id"], after)

    async def type(self, request: ApiRequest) -> None:
        text = request.body_as(SignInInput).text
        await self._runner.send_sign_in_input(request.path["id"], text, by=request.by.actor)

    async def cancel(self, request: ApiRequest) -> None:
        await self._runner.cancel_sign_in(request.path["id"], by=request.by.actor)


def sign_in_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the part of the route table that signs in to agents."""
    api = _SignIns(hub)
    return [
        json_endpoint(
            "admin",
            "GET /api/agents/known/{name}/sign-in",
            api.methods,
            "List the ways to sign in to an agent, which is started for it",
            returns=SignInMethods,
            errors=(404, 409, 424),
        ),
        json_endpoint(
            "admin",
            "POST /api/agents/known/{name}/sign-in",
            api.begin,
            "Sign in to an agent, without waiting for the end",
            body=BeginSignIn,
            returns=SignInState,
            status=202,
            errors=(400, 404, 409, 424, 429),
        ),
        *_one_sign_in(api),
    ]


def _one_sign_in(api: _SignIns) -> list[Endpoint]:
    return [
        json_endpoint(
            "admin",
            "GET /api/sign-ins/{id}",
            api.output,
            "Read what the terminal of a sign-in has shown; waits some seconds for more",
            query=OutputFrom,
            returns=SignInOutput,
            errors=(404,),
        ),
        json_endpoint(
            "admin",
            "POST /api/sign-ins/{id}/input",
            api.type,
            "Type into the terminal of a sign-in",
            body=SignInInput,
            status=204,
            errors=(404,),
        ),
        json_endpoint(
            "admin",
            "DELETE /api/sign-ins/{id}",
            api.cancel,
            "End a sign-in",
            status=204,
            errors=(404,),
        ),
    ]

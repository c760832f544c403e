"""Notifications of the device that asks."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.responses import Response

from quarterdeck.errors import RequestRejected
from quarterdeck.hub.api.endpoint import (
    ApiRequest,
    ApiResponse,
    Body,
    EmptyBody,
    Endpoint,
    error_response,
    invalid,
    json_app,
    not_found,
)
from quarterdeck.hub.hub import Hub
from quarterdeck.hub.push.delivery import AddressRefused, KeyInvalid
from quarterdeck.hub.push.store import PushKinds, Subscription
from quarterdeck.protocol.timestamps import iso_seconds


class SubscriptionKeys(Struct, frozen=True, kw_only=True):
    p256dh: Annotated[str, Meta(max_length=200)]
    auth: Annotated[str, Meta(max_length=100)]


class BrowserSubscription(Struct, frozen=True, kw_only=True):
    """As `PushSubscription.toJSON()` has it; what else is in it does not matter."""

    endpoint: Annotated[str, Meta(min_length=1, max_length=2000)]
    keys: SubscriptionKeys


class PushSubscribe(Body, frozen=True, kw_only=True):
    subscription: BrowserSubscription
    kinds: PushKinds = PushKinds()


class ChangeKinds(Body, frozen=True, kw_only=True):
    kinds: PushKinds


class Receipt(Body, frozen=True, kw_only=True):
    id: Annotated[str, Meta(max_length=64)]


class SubscriptionView(ApiResponse, frozen=True, kw_only=True):
    kinds: PushKinds
    problem: str | None
    """Why the last message did not go through."""
    received_at: str | None
    """When a test last arrived."""


class PushView(ApiResponse, frozen=True, kw_only=True):
    public_key: str
    """For `applicationServerKey`."""
    subscription: SubscriptionView | None


class TestSent(ApiResponse, frozen=True, kw_only=True):
    id: str
    """The service worker sends it back when it has arrived."""


class _PushApi:
    def __init__(self, hub: Hub) -> None:
        self._push = hub.push

    async def get(self, request: ApiRequest) -> PushView:
        found = await self._push.subscription(request.by.id)
        view = None if found is None else self._view(found)
        return PushView(public_key=self._push.options.key.public, subscription=view)

    def _view(self, found: Subscription) -> SubscriptionView:
        at = self._push.received_at(found.device_id)
        return SubscriptionView(
            kinds=found.kinds,
            problem=found.problem,
            received_at=None if at is None else iso_seconds(at),
        )

    async def put(self, request: ApiRequest) -> PushView:
        wanted = request.body_as(PushSubscribe)
        given = wanted.subscription
        try:
            await self._push.subscribe(
                Subscription(
                    device_id=request.by.id,
                    endpoint=given.endpoint,
                    p256dh=given.keys.p256dh,
                    auth=given.keys.auth,
                    kinds=wanted.kinds,
                )
            )
        except (AddressRefused, KeyInvalid) as error:
            raise invalid(f"{error}; turn notifications off and on again") from error
        return await self.get(request)

    async def change(self, request: ApiRequest) -> PushView:
        if not await self._push.set_kinds(request.by.id, request.body_as(ChangeKinds).kinds):
            raise _off()
        return await self.get(request)

    async def delete(self, request: ApiRequest) -> None:
        await self._push.unsubscribe(request.by.id)

    async def test(self, request: ApiRequest) -> TestSent | Response:
        found = await self._push.subscription(request.by.id)
        if found is None:
            raise _off()
        test_id, delivery = await self._push.test(found)
        if delivery.is_gone:
            message = "this browser's subscription has ended; turn notifications on again"
            raise RequestRejected("gone", message)
        if not delivery.is_done:
            message = (
                f"this browser's push service did not accept the notification: {delivery.reason}"
            )
            # 424: the push service failed, not the hub.
            code, retryable = "quarterdeck/unavailable", delivery.is_retryable
            return error_response(424, code, message, retryable=retryable)
        return TestSent(id=test_id)

    async def receipt(self, request: ApiRequest) -> None:
        if not self._push.confirm_test(request.by.id, request.body_as(Receipt).id):
            raise not_found("such test", "send a new one")


def _off() -> RequestRejected:
    return not_found("subscription of this device", "turn notifications on")


def push_endpoints(hub: Hub) -> list[Endpoint]:
    """Return the notifications' part of the route table."""
    api = _PushApi(hub)
    return [
        _endpoint(
            "GET", api.get, "Show the notification settings of this device", returns=PushView
        ),
        _endpoint("PUT", api.put, "Turn notifications of this device on", PushSubscribe, PushView),
        _endpoint("PATCH", api.change, "Choose notifications", ChangeKinds, PushView),
        _endpoint("DELETE", api.delete, "Turn notifications of this device off"),
        _endpoint("POST", api.test, "Send a test", EmptyBody, TestSent, "/test"),
        _endpoint(
            "POST", api.receipt, "Confirm that a test has arrived", Receipt, None, "/receipts"
        ),
    ]


def _endpoint(
    method: str,
    handle: Any,
    summary: str,
    body: type | None = None,
    returns: type | None = None,
    rest: str = "",
) -> Endpoint:
    status = 200 if returns is not None else 204
    return Endpoint(
        method=method,
        path=f"/api/push{rest}",
        scope="view",
        app=json_app(handle, body=body, status=status),
        summary=summary,
        tag="notifications",
        body=body,
        returns=returns,
        status=status,
        errors=(400, 404, 410, 424) if body is not None else (),
    )

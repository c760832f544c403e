"""A method or notification of ACP with its types, so that mypy checks generic callers."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from quarterdeck.acp.codec import decode

if TYPE_CHECKING:
    from typing_extensions import TypeForm

Req = TypeVar("Req")
Res = TypeVar("Res")
Params = TypeVar("Params")

Side: TypeAlias = Literal["agent", "client", "protocol", "proxy"]
"""The side that receives the call; `protocol` is either."""


@dataclass(frozen=True, slots=True)
class Method(Generic[Req, Res]):
    """A method with its request and response types."""

    name: str
    side: Side
    request: TypeForm[Req]
    response: TypeForm[Res]
    _: KW_ONLY
    stable: bool
    """In the stable schema. Call other methods only if the peer offers them."""

    def read_request(self, params: Any) -> Req:
        """Decode the params of a request.

        Raises:
            JsonInvalid: if `params` is a text that is not JSON.
            SchemaMismatch: if it is not what the method takes.
        """
        return decode(self.request, params)

    def read_response(self, result: Any) -> Res:
        """Decode the result of a request.

        Raises:
            JsonInvalid: if `result` is a text that is not JSON.
            SchemaMismatch: if it is not what the method returns.
        """
        return decode(self.response, result)


@dataclass(frozen=True, slots=True)
class NotificationMethod(Generic[Params]):
    """A notification with the type of its params."""

    name: str
    side: Side
    params: TypeForm[Params]
    _: KW_ONLY
    stable: bool

    def read(self, params: Any) -> Params:
        """Decode the params of a notification.

        Raises:
            JsonInvalid: if `params` is a text that is not JSON.
            SchemaMismatch: if it is not what the notification carries.
        """
        return decode(self.params, params)

"""A method or notification of ACP with its types, so that a generic caller is checked by mypy."""

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
"""Who receives the call; `protocol` is either side."""


@dataclass(frozen=True, slots=True)
class Method(Generic[Req, Res]):
    """A call that is answered."""

    name: str
    side: Side
    request: TypeForm[Req]
    response: TypeForm[Res]
    _: KW_ONLY
    stable: bool
    """In the stable schema. Others may be answered, but call them only if the peer offers them."""

    def read_request(self, params: Any) -> Req:
        """Read the parameters of a call.

        Raises:
            JsonInvalid: if `params` is a text that is not JSON.
            SchemaMismatch: if it is not what the method takes.
        """
        return decode(self.request, params)

    def read_response(self, result: Any) -> Res:
        """Read the answer to a call.

        Raises:
            JsonInvalid: if `result` is a text that is not JSON.
            SchemaMismatch: if it is not what the method returns.
        """
        return decode(self.response, result)


@dataclass(frozen=True, slots=True)
class NotificationMethod(Generic[Params]):
    """A notification: a call that is not answered."""

    name: str
    side: Side
    params: TypeForm[Params]
    _: KW_ONLY
    stable: bool

    def read(self, params: Any) -> Params:
        """Read the parameters of a notification.

        Raises:
            JsonInvalid: if `params` is a text that is not JSON.
            SchemaMismatch: if it is not what the notification carries.
        """
        return decode(self.params, params)

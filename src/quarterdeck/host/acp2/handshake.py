"""`initialize` for both versions in one message, and the answer in the words of ACP 1. Pure.

Many agents take `initialize` only once, so both shapes are in one message. Some agents answer with
any version that they are asked for, in the shape of ACP 1: the version alone proves nothing. An
answer is one of ACP 2 if its version is 2, it has `info`, and it has no `agentCapabilities`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from quarterdeck.acp import PROTOCOL_VERSION

Protocol: TypeAlias = Literal["auto", 1, 2]
"""Which version to speak with an agent: the newest that it has, or exactly this one."""
PROTOCOLS: Final[tuple[Protocol, ...]] = ("auto", 1, 2)
NEWEST: Final = 2
UNSUPPORTED_VERSION: Final = -32022
_SESSION_METHODS: Final = ("list", "resume", "close")
"""What every agent with ACP 2 and sessions can do."""


def initialize_params(
    version: int, client_info: Mapping[str, Any], capabilities: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the params of `initialize`; `capabilities` are those of ACP 1."""
    params: dict[str, Any] = {
        "protocolVersion": version,
        "clientInfo": client_info,
        "clientCapabilities": capabilities,
    }
    if version == PROTOCOL_VERSION:
        return params
    offered = {"elicitation": capabilities["elicitation"]} if "elicitation" in capabilities else {}
    return {**params, "info": client_info, "capabilities": offered}


def is_acp2(answer: Mapping[str, Any]) -> bool:
    """Return whether an agent has agreed to ACP 2."""
    is_newest = answer.get("protocolVersion") == NEWEST
    return is_newest and isinstance(answer.get("info"), dict) and "agentCapabilities" not in answer


def disagreement(answer: Mapping[str, Any], protocol: Protocol | None, asked: int) -> str | None:
    """Return why an agent's answer agrees on no version; None if it does.

    `protocol` is what its definition says, `asked` the version in `initialize`.
    """
    spoken, is_second = answer.get("protocolVersion"), is_acp2(answer)
    if asked != PROTOCOL_VERSION and is_second:
        return None
    if protocol == NEWEST:
        return f"its definition asks for protocol version 2, and it speaks {spoken!r}"
    # Some agents answer with any version that they are asked for, in the shape of the first.
    if spoken == PROTOCOL_VERSION or (spoken == asked and not is_second):
        return None
    return f"it speaks protocol version {spoken!r} and we speak {PROTOCOL_VERSION}"


def falls_back(error: Exception, protocol: Protocol | None, asked: int) -> bool:
    """Return whether to start an agent again with version 1, which it offers instead."""
    return protocol == "auto" and asked != PROTOCOL_VERSION and offers_version_1(error)


def offers_version_1(error: Any) -> bool:
    """Return whether a refused `initialize` may be repeated, by a new process, with version 1."""
    data = getattr(error, "data", None)
    supported = data.get("supported") if isinstance(data, Mapping) else None
    is_refusal = getattr(error, "code", None) == UNSUPPORTED_VERSION
    return is_refusal and isinstance(supported, list) and PROTOCOL_VERSION in supported


def answer_as_acp1(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an agent's answer in the words of ACP 1; its own capabilities are in `_meta.acp2`."""
    given = answer.get("capabilities")
    declared = given if isinstance(given, Mapping) else {}
    methods = [each for each in answer.get("authMethods") or () if isinstance(each, Mapping)]
    capabilities: dict[str, Any] = {"_meta": {"acp2": declared}}
    session = declared.get("session")
    if isinstance(session, Mapping):
        capabilities["loadSession"] = True
        capabilities["promptCapabilities"] = _markers(session.get("prompt"))
        capabilities["mcpCapabilities"] = _markers(session.get("mcp"))
        capabilities["sessionCapabilities"] = {
            **{name: {} for name in _SESSION_METHODS},
            **{
                name: value
                for name, value in session.items()
                if name not in ("prompt", "mcp", "_meta") and value is not None
            },
        }
    auth = declared.get("auth")
    if methods or isinstance(auth, Mapping):
        capabilities["auth"] = {**(auth or {}), **({"logout": {}} if methods else {})}
    if isinstance(declared.get("providers"), Mapping):
        capabilities["providers"] = declared["providers"]
    return {
        "protocolVersion": NEWEST,
        "agentInfo": answer.get("info"),
        "agentCapabilities": capabilities,
        "authMethods": [_auth_method(each) for each in methods],
    }


def _markers(given: Any) -> dict[str, bool]:
    """Return capabilities as booleans: ACP 2 has objects, or nothing."""
    table = given if isinstance(given, Mapping) else {}
    return {name: True for name, value in table.items() if isinstance(value, Mapping)}


def _auth_method(method: Mapping[str, Any]) -> dict[str, Any]:
    named = {"id" if key == "methodId" else key: value for key, value in method.items()}
    variables = named.get("env")
    if method.get("type") == "terminal" and isinstance(variables, list):
        # ACP 1 has a table of variables, ACP 2 a list.
        tables = (each for each in variables if isinstance(each, Mapping))
        named["env"] = {each.get("name"): each.get("value") for each in tables}
    return named

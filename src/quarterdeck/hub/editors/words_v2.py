"""What a hub and an editor with ACP 2 say in `initialize` and when they open a session. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from quarterdeck.agent import checks
from quarterdeck.agent.checks import Json
from quarterdeck.errors import RpcError
from quarterdeck.views.acp_replay import SEQ_CURSOR, ReplayCursor

VERSIONS: Final = (1, 2)
NEWEST: Final = VERSIONS[-1]
UNSUPPORTED_VERSION: Final = -32022
NUMBERS: Final = {"quarterdeck": {"replayFrom": [SEQ_CURSOR]}}
"""In `_meta` of the capabilities: updates have numbers, and a replay can begin at one."""
_UNKNOWN: Final = {"name": "unknown", "version": "unknown"}
_PROMPT: Final = ("image", "audio", "embeddedContext")


def choose_version(params: Json) -> int:
    """Return the newest version that is not above the requested one.

    Raises:
        RpcError: if there is none, or the request does not name a version.
    """
    requested = checks.protocol_version(params)
    if requested < VERSIONS[0]:
        data = {"requested": requested, "supported": list(VERSIONS)}
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    return min(requested, NEWEST)


def client_info(params: Json) -> Json:
    """Return who the client of ACP 2 is; one that asks for a newer version may leave it out.

    Raises:
        RpcError: if it asks for exactly this version and does not say.
    """
    info = params.get("info")
    names = [info.get("name"), info.get("version")] if isinstance(info, dict) else []
    if names and all(isinstance(each, str) for each in names):
        return dict(info or {})
    if checks.protocol_version(params) > NEWEST:
        return _UNKNOWN
    raise checks.invalid("info is required: an object with name and version")


def capabilities(declared: Mapping[str, Any], *, may_delete: bool) -> dict[str, Any]:
    """Return the capabilities of a hub in ACP 2, by those of its agent in ACP 1."""
    theirs = declared.get("sessionCapabilities") or {}
    prompt = declared.get("promptCapabilities") or {}
    mcp = declared.get("mcpCapabilities") or {}
    session: dict[str, Any] = {
        "prompt": {name: {} for name in _PROMPT if prompt.get(name) not in (None, False)},
        "mcp": {"stdio": {}, **({"http": {}} if mcp.get("http") not in (None, False) else {})},
    }
    if may_delete:
        session["delete"] = {}
    for name in ("additionalDirectories", "fork"):
        if theirs.get(name) not in (None, False):
            session[name] = {}
    return {"session": session, "_meta": NUMBERS}


def auth_methods(methods: Iterable[Any], *, in_terminal: bool) -> list[dict[str, Any]]:
    """Return the ways to sign in that a client can use, in the words of ACP 2."""
    return [
        _auth_method(each)
        for each in methods
        if isinstance(each, Mapping) and (in_terminal or each.get("type") != "terminal")
    ]


def _auth_method(method: Mapping[str, Any]) -> dict[str, Any]:
    kind = method.get("type", "agent")
    named = {"methodId" if key == "id" else key: value for key, value in method.items()}
    is_known = kind in ("agent", "terminal") or str(kind).startswith("_")
    return {**named, "type": kind if is_known else f"_{kind}"}


def servers_as_acp1(params: Json) -> Json:
    """Return the params of a request that opens a session, with MCP servers as ACP 1 has them."""
    servers = params.get("mcpServers")
    if not isinstance(servers, list):
        return params
    return {**params, "mcpServers": [_server(each) for each in servers]}


def _server(server: Any) -> Any:
    if not isinstance(server, dict):
        return server
    if server.get("type") == "stdio":
        given = {name: value for name, value in server.items() if name != "type"}
        return {"args": [], "env": [], **given}
    return {"headers": [], **server}


def read_cursor(given: Any) -> ReplayCursor | None:
    """Return where a client wants a replay to begin; None if it wants none.

    Raises:
        RpcError: if it is a cursor that we do not have, or not a cursor.
    """
    if given is None:
        return None
    if isinstance(given, dict) and given.get("type") == "start":
        return ReplayCursor(0)
    cursor = ReplayCursor.read(given)
    if cursor is None:
        reason = f'replayFrom must be {{"type": "start"}} or {{"type": "{SEQ_CURSOR}", "seq": N}}'
        raise checks.invalid(reason)
    return cursor

"""What an agent and a client with ACP 2 say in `initialize` and when they open a session. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from quarterdeck.agent import checks
from quarterdeck.agent.checks import Json
from quarterdeck.errors import RpcError

VERSIONS: Final = (1, 2)
NEWEST: Final = VERSIONS[-1]
UNSUPPORTED_VERSION: Final = -32022
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


def session_capabilities(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return what sessions can do in ACP 2, by the capabilities of an agent in ACP 1."""
    theirs = declared.get("sessionCapabilities") or {}
    prompt = declared.get("promptCapabilities") or {}
    mcp = declared.get("mcpCapabilities") or {}
    session: dict[str, Any] = {
        "prompt": {name: {} for name in _PROMPT if prompt.get(name) not in (None, False)},
        "mcp": {"stdio": {}, **({"http": {}} if mcp.get("http") not in (None, False) else {})},
    }
    for name in ("additionalDirectories", "fork"):
        if theirs.get(name) not in (None, False):
            session[name] = {}
    return session


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
    started = _started_by(method) if kind == "terminal" else {}
    return {**named, **started, "type": kind if is_known else f"_{kind}"}


def _started_by(method: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments and variables of a sign-in in a terminal: ACP 1 has a table of them."""
    args, env = method.get("args"), method.get("env")
    found: dict[str, Any] = {}
    if "args" in method:
        texts = args if isinstance(args, list | tuple) else ()
        found["args"] = [each for each in texts if isinstance(each, str)]
    if "env" in method:
        values = env.items() if isinstance(env, Mapping) else ()
        pairs = [pair for pair in values if all(isinstance(each, str) for each in pair)]
        found["env"] = [{"name": name, "value": value} for name, value in pairs]
    return found


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


def option_value(params: Json) -> str | bool:
    """Return the value of an option that a client sets.

    Raises:
        RpcError: if it is not a value of a known type.
    """
    value = params.get("value")
    match params.get("type"):
        case "id" if isinstance(value, str):
            return value
        case "boolean" if isinstance(value, bool):
            return value
        case _:
            raise checks.invalid('value needs type "id" with a string, or "boolean" with a boolean')

"""Validation of the params that clients send.

Every violation is an `RpcError` with code -32602 (Invalid params) whose `data` is a sentence that
names the field and what it must be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from quarterdeck.acp import decode, schema, to_dict
from quarterdeck.errors import JsonInvalid, RpcError, SchemaMismatch
from quarterdeck.wire import INVALID_PARAMS, rpc_error

Json: TypeAlias = Mapping[str, Any]

SESSION_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")

_PROTOCOL_VERSIONS: Final = range(65536)
_TYPES: Final = {"image": "image/png", "audio": "audio/wav"}
_OPTIONAL_STRINGS: Final = ("mimeType", "name", "title", "description", "uri")
_HINTS: Final = ("annotations", "size", "_meta")
_NEEDS: Final = {"image": "image", "audio": "audio", "resource": "embeddedContext"}


def invalid(reason: str) -> RpcError:
    return rpc_error(INVALID_PARAMS, reason)


@dataclass(frozen=True, slots=True)
class McpServer:
    """A stdio MCP server of a session; start it in the session's cwd."""

    name: str
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to the environment; never stored, never shown."""


def required_string(params: Json, name: str) -> str:
    value = params.get(name)
    if value is None or value == "":
        raise invalid(f"{name} is required")
    if not isinstance(value, str):
        raise invalid(f"{name} must be a string")
    return value


def optional_string(params: Json, name: str) -> str | None:
    value = params.get(name)
    if value is not None and not isinstance(value, str):
        raise invalid(f"{name} must be a string")
    return value


def protocol_version(params: Json) -> int:
    version = params.get("protocolVersion")
    if version is None:
        raise invalid("protocolVersion is required")
    if isinstance(version, float) and version.is_integer():
        version = int(version)
    if not isinstance(version, int) or isinstance(version, bool):
        raise invalid("protocolVersion must be an integer")
    if version not in _PROTOCOL_VERSIONS:
        raise invalid("protocolVersion must be from 0 to 65535")
    return version


def optional_object(params: Json, name: str) -> Json:
    value = params.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(f"{name} must be an object")
    return value


def session_id(params: Json) -> str:
    named = required_string(params, "sessionId")
    if not SESSION_ID.fullmatch(named):
        raise invalid("sessionId may have letters, digits, - and _ only")
    return named


def directory(path: Any, name: str) -> Path:
    """Check one directory; reads the disk, so call it in a thread."""
    if path is None or (isinstance(path, str) and not path.strip()):
        raise invalid(f"{name} is required")
    if not isinstance(path, str):
        raise invalid(f"{name} must be a string")
    found = Path(path)
    if not found.is_absolute():
        raise invalid(f"{name} must be an absolute path")
    try:
        if found.is_dir():
            return found
    except (OSError, ValueError):  # ValueError: a NUL
        pass
    raise invalid(f"{name} is not a directory: {path!r}")


def additional_directories(params: Json) -> tuple[Path, ...]:
    given = params.get("additionalDirectories")
    if given is None:
        return ()
    if not isinstance(given, list):
        raise invalid("additionalDirectories must be an array")
    return tuple(
        directory(path, f"additionalDirectories[{index}]") for index, path in enumerate(given)
    )


def mcp_servers(params: Json) -> tuple[McpServer, ...]:
    given = params.get("mcpServers")
    if given is None:
        raise invalid("mcpServers is required")
    if not isinstance(given, list):
        raise invalid("mcpServers must be an array")
    servers = tuple(_mcp_server(entry, f"mcpServers[{n}]") for n, entry in enumerate(given))
    names = [server.name for server in servers]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise invalid(f"two mcp servers are named {twice!r}")
    return servers


def _mcp_server(entry: Any, where: str) -> McpServer:
    if not isinstance(entry, dict):
        raise invalid(f"{where} must be an object")
    kind = entry.get("type", "stdio")
    if kind in ("http", "sse", "acp"):
        raise invalid(f"mcp server type {kind} not supported")
    if kind != "stdio":
        raise invalid(f"unknown mcp server type {kind}")
    strings = {}
    for name in ("name", "command"):
        value = entry.get(name)
        if not isinstance(value, str) or not value.strip():
            raise invalid(f"{where}.{name} is required")
        strings[name] = value
    return McpServer(**strings, args=_args(entry, where), env=_env(entry, where))


def _args(entry: Json, where: str) -> tuple[str, ...]:
    args = entry.get("args")
    if args is None:
        raise invalid(f"{where}.args is required")
    if not isinstance(args, list) or not all(isinstance(each, str) for each in args):
        raise invalid(f"{where}.args must be an array of strings")
    return tuple(args)


def _env(entry: Json, where: str) -> dict[str, str]:
    env = entry.get("env")
    if env is None:
        raise invalid(f"{where}.env is required")
    is_list = isinstance(env, list) and all(isinstance(each, dict) for each in env)
    if not is_list:
        raise invalid(f"{where}.env must be an array of objects with name and value")
    variables = {}
    for each in env:
        name, value = each.get("name"), each.get("value")
        if not isinstance(name, str) or not isinstance(value, str) or not name:
            # The entry is not quoted: its value may be a secret.
            raise invalid(f"{where}.env must be an array of objects with name and value")
        variables[name] = value
    return variables


def prompt_blocks(params: Json, capabilities: Mapping[str, bool]) -> tuple[dict[str, Any], ...]:
    blocks = params.get("prompt")
    if blocks is None:
        raise invalid("prompt is required")
    if not isinstance(blocks, list):
        raise invalid("prompt must be an array")
    if not blocks:
        raise invalid("prompt must have at least one content block")
    for where, block in enumerate(blocks):
        _check_block(block, f"prompt[{where}]", capabilities)
    return tuple(blocks)


def _check_block(block: Any, where: str, capabilities: Mapping[str, bool]) -> None:
    if not isinstance(block, dict):
        raise invalid(f"{where} must be an object")
    kind = block.get("type")
    if not isinstance(kind, str):
        raise invalid(f"{where}.type is required")
    needs = _NEEDS.get(kind)
    if needs is not None and not capabilities.get(needs):
        raise invalid(f"{where}: this agent takes no {kind} content")
    match kind:
        case "text":
            _need_string(block, "text", where)
        case "resource_link":
            _need_string(block, "uri", where)
        case "image" | "audio":
            _need_string(block, "data", where)
        case "resource":
            _check_resource(block.get("resource"), f"{where}.resource")
        case _:
            raise invalid(f"{where}: unknown content type {kind!r}")
    _need_strings_if_present(block, where)


def _check_resource(resource: Any, where: str) -> None:
    if not isinstance(resource, dict):
        raise invalid(f"{where} must be an object")
    _need_string(resource, "uri", where)
    content = [resource.get("text"), resource.get("blob")]
    if not any(isinstance(each, str) for each in content):
        raise invalid(f"{where} needs text or blob")
    _need_strings_if_present(resource, where)


def _need_string(block: Json, name: str, where: str) -> None:
    if not isinstance(block.get(name), str):
        raise invalid(f"{where}.{name} must be a string")


def _need_strings_if_present(block: Json, where: str) -> None:
    for name in _OPTIONAL_STRINGS:
        if block.get(name) is not None:
            _need_string(block, name, where)


def as_recorded(block: Json) -> Json:
    """Return a block of a prompt as it is recorded: completed to match ACP's schema.

    We accept a link without a name, an image without a type and hints of any shape; a client that
    loads the session later may not.
    """
    recorded = _completed(block)
    if not any(name in recorded for name in _HINTS):
        return recorded
    try:
        known = to_dict(decode(schema.ContentBlock, recorded))
    except (SchemaMismatch, JsonInvalid):  # the block itself; we accepted it above
        known = {}
    kept = {name: value for name, value in recorded.items() if name not in _HINTS}
    return {**kept, **{name: known[name] for name in _HINTS if name in known}}


def _completed(block: Json) -> Json:
    match block:
        case {"type": "resource_link", "uri": str(uri)} if not isinstance(block.get("name"), str):
            return {**block, "name": uri.rstrip("/").rpartition("/")[2] or uri}
        case {"type": "image" | "audio" as kind} if not isinstance(block.get("mimeType"), str):
            return {**block, "mimeType": _TYPES[kind]}
        case {"type": "resource", "resource": {"uri": str()} as resource}:
            # Clients that serialise all fields of a class send text or blob as null.
            there = {name: value for name, value in resource.items() if value is not None}
            return {**block, "resource": there}
        case _:
            return block


def prompt_text(blocks: Sequence[Json]) -> str:
    """Return a prompt as text: text blocks, embedded texts, and links by name."""
    return "\n".join(part for part in map(_text, blocks) if part is not None)


def _text(block: Json) -> str | None:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
            return f"{uri}:\n{text}"
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[{block.get('name') or uri}]({uri})"
        case _:
            return None

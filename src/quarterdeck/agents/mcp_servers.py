"""MCP servers that sessions get: by the configuration of the hub, or for one session.

Secrets are named, never written: `${NAME}` in a variable or a header is a variable of the hub's
environment, read when a session is opened. The host hides their values and stores only their names.
A server that was added for one session keeps the reference beside each value (`_meta`), so that it
has its values again when the session is opened again (`with_values`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from quarterdeck.agents.known_agents import VARIABLE, expand_headers
from quarterdeck.errors import Misused, RequestRejected

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


class McpServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MCP server: a command, or a URL."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Its variables; `${NAME}` is one of the hub's environment."""
    url: str = ""
    transport: Literal["http", "sse"] = "http"
    """Of the `url`."""
    headers: dict[str, str] = {}
    """Sent to the `url`; `${NAME}` as in `env`."""
    projects: tuple[str, ...] = ()
    """Folders whose sessions get it; all sessions if there are none."""


class McpServerView(Struct, frozen=True, kw_only=True, rename="camel"):
    """An MCP server of the configuration, as it is shown."""

    name: str
    command: str = ""
    """With its arguments; empty for a `url`."""
    url: str = ""
    variables: tuple[str, ...] = ()
    """Names of variables of the environment that it needs."""
    missing: tuple[str, ...] = ()
    """Those of them that are not set."""
    projects: tuple[str, ...] = ()
    """Folders whose sessions get it; all sessions if there are none."""
    is_used: bool = True
    """Whether a session in the folder that was asked about gets it."""


class McpChoice(Struct, frozen=True, kw_only=True):
    """The MCP servers of a new session."""

    configured: tuple[str, ...] | None = None
    """Names of those in the configuration; None: all that its folder gets."""
    added: dict[str, McpServerSettings] = {}
    """Servers for this session alone, by name."""


def problem_of(settings: McpServerSettings) -> str | None:
    """Return what is wrong with a server, or None."""
    if bool(settings.command) == bool(settings.url):
        return "needs either command or url"
    if settings.url and not _is_web_address(settings.url):
        return "has a url that is not http or https"
    if settings.url and (settings.args or settings.env):
        return "has a url; args and env are for a command"
    if settings.command and settings.headers:
        return "has headers, which are for a url"
    relative = [each for each in settings.projects if not Path(each).expanduser().is_absolute()]
    return f"projects: {relative[0]!r} is not an absolute path" if relative else None


def _is_web_address(url: str) -> bool:
    try:
        address = urlsplit(url)
        return address.scheme in ("https", "http") and bool(address.hostname)
    except ValueError:
        return False


def literal_secret(settings: McpServerSettings) -> str | None:
    """Return what may be a secret that is written out, in words; None if there is nothing.

    Variables and headers of a server that a client sends are references alone: what is written out
    would be in the memory of browsers and in backups of them.
    """
    for name, value in settings.env.items():
        if VARIABLE.fullmatch(value) is None:
            return f"{name} has a literal value"
    for name, value in settings.headers.items():
        if _REFERRING_HEADER.fullmatch(value) is None:
            return f"the header {name} has a literal value"
    return stored_secret(settings)


def stored_secret(settings: McpServerSettings) -> str | None:
    """Return what may be a secret in what the log has of a server: its URL and its arguments."""
    address = urlsplit(settings.url)
    if "@" in address.netloc or _SECRET_PARAMETER.search(address.query):
        return "the URL contains a credential"
    words = [word for each in settings.args for word in each.split()]  # a line for a shell, too
    options = [*words, *(f"{word}={after}" for word, after in pairwise(words) if after[0] != "-")]
    found = [_SECRET_OPTION.match(each) for each in options]
    found += [_ASSIGNED_SECRET.search(each) for each in settings.args]
    secret = next(filter(None, found), None)
    return None if secret is None else f"the argument {secret[1]} gives a credential"


USE_VARIABLE: Final = (
    "the log stores arguments and URLs, so pass it in a variable or a header, as ${NAME}"
)
_REFERRING_HEADER: Final = re.compile(r"(?:[A-Za-z]+ )?" + VARIABLE.pattern)
_TELLING: Final = (
    r"(?:token|api[-_]?key|access[-_]?key|secret|password|passwd|credentials?|auth|authorization"
    r"|(?<![a-z])(?:pat|key)(?![a-z]))"
)
_SECRET_PARAMETER: Final = re.compile(rf"(?i)(?:^|&)[^=&]*{_TELLING}[^=&]*=")
_SECRET_OPTION: Final = re.compile(
    rf"(?i)(--?(?!no-)[\w-]*{_TELLING})=(?![\"']?\$\{{?\w+\}}?[\"']?$).", re.DOTALL
)
"""As in `--token=…`; a value that only names a variable is none."""
_ASSIGNED_SECRET: Final = re.compile(rf"(?i)(?<![\w-])([\w-]*{_TELLING})(?:=|: )[\"']?[^$\s\"']")
"""As in `docker run -e TOKEN=…`, `curl -H "Authorization: …"` or `sh -c "TOKEN=… program"`."""


def server_views(
    servers: Mapping[str, McpServerSettings], cwd: str | None, environ: Mapping[str, str]
) -> Iterator[McpServerView]:
    """Yield all servers of the configuration, and whether a session in a folder gets them."""
    for name, settings in servers.items():
        texts = (settings.headers if settings.url else settings.env).values()
        variables = dict.fromkeys(found for each in texts for found in VARIABLE.findall(each))
        yield McpServerView(
            name=name,
            command=shlex.join((settings.command, *settings.args)) if settings.command else "",
            url=settings.url,
            variables=tuple(variables),
            missing=tuple(each for each in variables if each not in environ),
            projects=settings.projects,
            is_used=cwd is None or _is_for(settings, Path(cwd).resolve()),
        )


def _is_for(settings: McpServerSettings, folder: Path) -> bool:
    roots = [Path(each).expanduser().resolve() for each in settings.projects]
    return not roots or any(folder.is_relative_to(root) for root in roots)


def chosen_servers(
    servers: Mapping[str, McpServerSettings],
    choice: McpChoice,
    cwd: str,
    environ: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return the servers that were chosen for a session, in ACP's form.

    Raises:
        RequestRejected: if there is none of a name, one is not as it has to be, or a variable that
            one of them names is not set.
    """
    folder = Path(cwd).resolve()
    usable = {name: each for name, each in servers.items() if _is_for(each, folder)}
    wanted = usable.keys() if choice.configured is None else choice.configured
    for name in wanted:
        if name not in usable:
            message = f"hub.toml has no MCP server {name!r} for this folder; choose another"
            raise RequestRejected("invalid", message)
    for name, settings in choice.added.items():
        _check_added(name, settings)
    own = [referring_server(name, each, environ) for name, each in choice.added.items()]
    rest = [server_of(name, usable[name], environ) for name in wanted if name not in choice.added]
    return [*own, *rest]


def _check_added(name: str, settings: McpServerSettings) -> None:
    problem = problem_of(settings)
    if not name.strip():
        raise RequestRejected("invalid", "an MCP server needs a name")
    if problem is not None:
        raise RequestRejected("invalid", f"the MCP server {name} {problem}")
    secret = literal_secret(settings)
    if secret is not None:
        message = (
            f"the MCP server {name} is not added: {secret}; set a variable in the environment of"
            " the hub and send ${NAME} instead"
        )
        raise RequestRejected("literal-secret", message)


def referring_server(
    name: str, settings: McpServerSettings, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return a server as `server_of` does, marked, with the reference of each value beside it."""
    server = {**server_of(name, settings, environ), "_meta": {_OURS: {"added": True}}}
    references = settings.headers if settings.url else settings.env
    for entry in server["headers" if settings.url else "env"]:
        entry["_meta"] = {_OURS: {"reference": references[entry["name"]]}}
    return server


def is_added(server: Mapping[str, Any]) -> bool:
    """Return whether a stored server was added for its session, also in place of another."""
    meta = server.get("_meta")
    ours = meta.get(_OURS) if isinstance(meta, Mapping) else None
    return isinstance(ours, Mapping) and ours.get("added") is True


def with_values(server: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return a stored server with the values that its references have now; others stay without."""
    whole = dict(server)
    for key in ("env", "headers"):
        if isinstance(whole.get(key), list | tuple):
            whole[key] = [_with_value(each, environ) for each in whole[key]]
    return whole


def _with_value(entry: Any, environ: Mapping[str, str]) -> Any:
    if not isinstance(entry, Mapping) or "value" in entry:
        return entry
    meta = entry.get("_meta")
    ours = meta.get(_OURS) if isinstance(meta, Mapping) else None
    reference = ours.get("reference") if isinstance(ours, Mapping) else None
    if not isinstance(reference, str):
        return entry
    try:
        return {**entry, "value": VARIABLE.sub(lambda found: environ[found[1]], reference)}
    except KeyError:
        return entry


_OURS: Final = "quarterdeck"


def configured_servers(
    servers: Mapping[str, McpServerSettings], cwd: str, environ: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the servers for a session in a folder, in ACP's form.

    Raises:
        RequestRejected: if a variable that one of them names is not set.
    """
    folder = Path(cwd).resolve()
    for name, settings in servers.items():
        if _is_for(settings, folder):
            yield server_of(name, settings, environ)


def server_of(name: str, settings: McpServerSettings, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return a server in ACP's form, with the values of its variables.

    Raises:
        RequestRejected: if one of them is not set.
    """
    try:
        values = expand_headers(settings.headers if settings.url else settings.env, environ)
    except KeyError as error:
        message = f"the MCP server {name} needs the variable {error.args[0]}, which is not set"
        raise RequestRejected("not-startable", f"{message}; export it and restart") from error
    pairs = [{"name": each, "value": value} for each, value in values.items()]
    if settings.url:
        return {"type": settings.transport, "name": name, "url": settings.url, "headers": pairs}
    return {"name": name, "command": settings.command, "args": list(settings.args), "env": pairs}


def parse_server(text: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the server of `run --mcp NAME=COMMAND`, or `NAME=URL`.

    Words such as `TOKEN=${MY_TOKEN}` before the command are its variables.

    Raises:
        Misused: if it is neither.
    """
    name, _, rest = text.partition("=")
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise Misused(f"--mcp {name}: {error}; check its quotes") from error
    env: dict[str, str] = {}
    while words and (found := _ASSIGNMENT.fullmatch(words[0])) is not None:
        env[found[1]] = found[2]
        words = words[1:]
    if not name or not words:
        raise Misused("--mcp takes NAME=COMMAND or NAME=URL; see quarterdeck run --help")
    if words[0].startswith(("https://", "http://")):
        if env or words[1:]:
            raise Misused(
                f"--mcp {name}: a URL takes no variables or arguments; set it in hub.toml"
            )
        settings = McpServerSettings(url=words[0])
    else:
        settings = McpServerSettings(command=words[0], args=tuple(words[1:]), env=env)
    if (secret := stored_secret(settings)) is not None:
        raise Misused(f"--mcp {name}: {secret}; {USE_VARIABLE}")
    try:
        return server_of(name, settings, environ)
    except RequestRejected as error:
        raise Misused(f"--mcp: {error.message}") from error

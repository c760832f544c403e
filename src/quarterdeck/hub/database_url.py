"""The URL of the hub's database: variables in it, its password, and how it is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from quarterdeck.errors import StartRefused

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def database_url(template: str, environ: Mapping[str, str]) -> str:
    """Return the URL of a database with the values of the variables that it names.

    A value is a part of the URL, such as a password with any characters, unless it is all of it.

    Raises:
        StartRefused: if a variable is not set.
    """
    is_whole = _VARIABLE.fullmatch(template) is not None

    def value(found: re.Match[str]) -> str:
        name = found[1]
        if not environ.get(name):
            reason = f"database.url in hub.toml needs the variable {name}, which is not set"
            raise StartRefused(reason, "set it in the environment that the hub is started in")
        return environ[name] if is_whole else quote(environ[name], safe="")

    return _VARIABLE.sub(value, template)


def database_url_problem(template: str) -> str | None:
    """Return why a URL in hub.toml cannot be used, as the end of a sentence; None if it can."""
    if not template or _VARIABLE.match(template):
        return None
    try:
        is_known = urlsplit(template).scheme in ("postgres", "postgresql")
    except ValueError:
        is_known = False
    return None if is_known else "is not a URL such as postgresql://USER@HOST/DATABASE"


def has_password(template: str) -> bool:
    """Return whether a URL in hub.toml has a password in it, not the name of a variable."""
    parts = urlsplit(template)
    passwords = (parts.password, dict(parse_qsl(parts.query)).get("password"))
    return any(text and _VARIABLE.search(text) is None for text in passwords)


def public_url(url: str) -> str:
    """Return a URL without its password, and without its query, which may have one, too."""
    try:
        parts = urlsplit(url)
        user = f"{parts.username}@" if parts.username else ""
        port = f":{parts.port}" if parts.port else ""
        address = f"{user}{parts.hostname or ''}{port}"
        return urlunsplit((parts.scheme, address, parts.path, "", ""))
    except ValueError:
        return "postgresql://…"

"""Which variables of the hub's environment agents and their terminals get.

Agents do not inherit the whole environment: the shell that starts a hub also has database URLs,
keys of other agents and tokens. Every agent gets the variables in `COMMON`. An agent that is
recognised by its name or its program also gets its own keys, which the catalogue names. All others
have to be listed in `pass_env`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePath
from types import MappingProxyType
from typing import Final

from quarterdeck.agents.catalogue import CatalogueEntry, built_in_entries
from quarterdeck.machine import HIDDEN_VARIABLE
from quarterdeck.protocol import AgentDefinition

COMMON: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TMP", "TEMP", "HOSTNAME"),
    *("LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TERM_PROGRAM*", "COLORTERM", "COLUMNS", "LINES"),
    *("NO_COLOR", "FORCE_COLOR", "CLICOLOR*", "LS_COLORS", "EDITOR", "VISUAL", "PAGER", "BROWSER"),
    *("XDG_*", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS"),
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_TTY", "GNUPGHOME"),
    *("GIT_AUTHOR_*", "GIT_COMMITTER_*", "GIT_SSH*", "GIT_EDITOR", "GIT_CONFIG_GLOBAL"),
    # In many companies programs cannot reach the network without these.
    *("[Hh][Tt][Tt][Pp]_[Pp][Rr][Oo][Xx][Yy]", "[Hh][Tt][Tt][Pp][Ss]_[Pp][Rr][Oo][Xx][Yy]"),
    *("[Nn][Oo]_[Pp][Rr][Oo][Xx][Yy]", "[Aa][Ll][Ll]_[Pp][Rr][Oo][Xx][Yy]"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("NODE_EXTRA_CA_CERTS", "NODE_OPTIONS", "NODE_PATH", "NVM_*", "FNM_*", "VOLTA_*", "N_PREFIX"),
    *("PNPM_HOME", "BUN_INSTALL", "DENO_DIR", "DENO_INSTALL*", "COREPACK_HOME"),
    *("[Nn][Pp][Mm]_[Cc][Oo][Nn][Ff][Ii][Gg]_[PpCc]*",),  # prefix, cache; not _auth
    *("PYTHON*", "VIRTUAL_ENV", "CONDA_*", "PYENV_*", "UV_CACHE_DIR", "PIP_CACHE_DIR", "PIPX_*"),
    *("CARGO_HOME", "RUSTUP_*", "GOPATH", "GOROOT", "GOBIN", "GOCACHE", "GOMODCACHE"),
    *("JAVA_HOME", "JDK_HOME", "MAVEN_HOME", "M2_HOME", "GRADLE_HOME", "GRADLE_USER_HOME"),
    *("SDKMAN_DIR", "ANDROID_HOME", "ANDROID_SDK_ROOT", "DOTNET_ROOT", "GEM_HOME", "GEM_PATH"),
    *(
        "RBENV_ROOT",
        "ASDF_*",
        "MISE_*DIR",
        "HOMEBREW_PREFIX",
        "HOMEBREW_CELLAR",
        "NIX_P*",
        "NIX_SSL_*",
    ),
    *("LD_LIBRARY_PATH", "DYLD_*", "PKG_CONFIG_PATH", "MANPATH", "INFOPATH", "CPATH"),
    *("DOCKER_HOST", "DOCKER_CONTEXT", "CI", "IS_SANDBOX"),
    *("WSL_*", "WSLENV", "COMMAND_MODE", "__CF_USER_TEXT_ENCODING", "SECURITYSESSIONID"),
    *("COVERAGE_*",),
)
"""Variables that any program may need; none of them is a key."""

_ANY_MODEL: Final = (
    *("OPENAI_*", "AZURE_OPENAI_*", "GEMINI_*", "GOOGLE_*", "OPENROUTER_*", "DEEPSEEK_*"),
    *("MISTRAL_*", "GROQ_*", "XAI_*", "COHERE_*", "TOGETHER_*", "FIREWORKS_*", "CEREBRAS_*"),
    *("MOONSHOT_*", "DASHSCOPE_*", "ZAI_*", "MINIMAX_*", "OLLAMA_*", "LITELLM_*", "HF_TOKEN"),
)
"""Keys of the usual providers of models, besides those of Claude."""
_BUILT_IN: Final = "quarterdeck"
_OWN_SETTINGS: Final = (
    "QUARTERDECK_MODEL",
    "QUARTERDECK_BASE_URL",
    "QUARTERDECK_CONFIG",
    "QUARTERDECK_SESSIONS",
    HIDDEN_VARIABLE,
)
"""Settings of the built-in agent; tokens of a hub are never passed on, see `_NEVER`."""


def keys_of(entry: CatalogueEntry) -> tuple[str, ...]:
    """Return the patterns of the variables that an agent of the catalogue gets."""
    needs = entry.environment
    like = built_in_entries().get(needs.like or "")
    shared = () if like is None or like is entry else keys_of(like)
    more = _every_model() if needs.any_model else ()
    return (*needs.keys, *shared, *more)


def _every_model() -> tuple[str, ...]:
    return (*built_in_entries()["claude"].environment.keys, *_ANY_MODEL)


@cache
def _keys() -> Mapping[str, tuple[str, ...]]:
    """Return the patterns by the first part of the name of an agent or of its program."""
    found = {name: keys_of(entry) for name, entry in built_in_entries().items()}
    return MappingProxyType({**found, _BUILT_IN: (*_OWN_SETTINGS, *_every_model())})


_NEVER: Final = re.compile(r"QUARTERDECK_(HOME|([A-Z]+_)*TOKEN)")
_CREDENTIAL: Final = re.compile(
    r"(^|_)(KEY|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTH|DSN)(_|$)|_URL$",
)
_NPM_FOLDER: Final = "node_modules"
_AFFIX: Final = re.compile(r"@[^/]*$|\.(js|mjs|cjs|py|exe|cmd)$")


class Environment:
    """Selects the variables of one environment that agents and terminals get."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        for_all: Iterable[str] = (),
        by_agent: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Pass on `for_all`, and `by_agent` to the agents of these names, besides the usual."""
        self.all = self._environ = environ
        self._for_all = (*COMMON, *for_all)
        self.by_agent = dict(by_agent or {})
        self.hidden: tuple[str, ...] = ()
        """Folders that the built-in agent keeps out of by itself, confined or not."""

    def common(self) -> dict[str, str]:
        """Return what every program gets, including terminals of agents."""
        return self._selected(self._for_all)

    def of(self, definition: AgentDefinition) -> dict[str, str]:
        """Return what an agent gets."""
        keys = key_patterns((definition.id, definition.command, *definition.args))
        found = self._selected((*self._for_all, *keys, *self.by_agent.get(definition.id, ())))
        if self.hidden and HIDDEN_VARIABLE in keys:
            found[HIDDEN_VARIABLE] = os.pathsep.join(self.hidden)
        return found

    def withheld(self, definition: AgentDefinition) -> list[str]:
        """Return the names of variables that look like keys and that an agent does not get."""
        if definition.url is not None:
            return []  # it gets none
        given = {*self.of(definition), *(definition.env or ())}
        return sorted(
            name
            for name in self._environ
            if name not in given and looks_secret(name) and not name.startswith("QUARTERDECK_")
        )

    def _selected(self, patterns: tuple[str, ...]) -> dict[str, str]:
        return {
            name: value
            for name, value in self._environ.items()
            if not _NEVER.fullmatch(name) and any(fnmatchcase(name, each) for each in patterns)
        }


def key_patterns(words: Iterable[str]) -> tuple[str, ...]:
    """Return patterns for the keys of the agents that these words name."""
    programs = {_AFFIX.sub("", part).lower() for word in words for part in _names_in(word)}
    found: list[str] = []
    for name, patterns in _keys().items():
        if any(each == name or each.startswith(f"{name}-") for each in programs):
            found.extend(patterns)
    return tuple(found)


def _names_in(word: str) -> tuple[str, ...]:
    """Return the program that a word of a command line names, and its npm package.

    Other folders of the path are ignored: a home folder may have the name of an agent.
    """
    parts = PurePath(word).parts
    if _NPM_FOLDER in parts:
        return parts[parts.index(_NPM_FOLDER) + 1 :]
    return parts[-1:]


def looks_secret(name: str) -> bool:
    """Return whether the name of a variable looks like that of a key."""
    return _CREDENTIAL.search(name.upper()) is not None

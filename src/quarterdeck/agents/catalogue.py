"""Agents that can be started by name, and which environment variables each of them gets.

An agent is configured, well known, or the demo agent; a configured one replaces a well-known one of
the same name.

Agents do not inherit the whole environment: the shell that starts a hub also has database URLs,
keys of other agents and tokens. Every agent gets the variables in `COMMON`. An agent that is
recognised by its name or its program also gets its own keys (`_KEYS`). All others have to be listed
in `pass_env`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Final, Literal

from msgspec import Struct

from quarterdeck.errors import RequestRejected
from quarterdeck.http.remote_agent import shown_url
from quarterdeck.machine import (
    HIDDEN_VARIABLE,
    ConfinementStatus,
    ConfineMode,
    SandboxLimits,
    SandboxMode,
)
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

_CLAUDE: Final = (
    *("ANTHROPIC_*", "CLAUDE_*", "CLAUDECODE*", "MAX_THINKING_TOKENS", "MAX_MCP_OUTPUT_TOKENS"),
    *(
        "BASH_*_TIMEOUT_MS",
        "MCP_TIMEOUT",
        "MCP_TOOL_TIMEOUT",
        "DISABLE_*",
        "ENABLE_TOOL_SEARCH",
        "USE_BUILTIN_RIPGREP",
    ),
    *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_*", "CLOUD_ML_REGION", "VERTEX_*"),
)
_ANY_MODEL: Final = (
    *_CLAUDE,
    *("OPENAI_*", "AZURE_OPENAI_*", "GEMINI_*", "GOOGLE_*", "OPENROUTER_*", "DEEPSEEK_*"),
    *("MISTRAL_*", "GROQ_*", "XAI_*", "COHERE_*", "TOGETHER_*", "FIREWORKS_*", "CEREBRAS_*"),
    *("MOONSHOT_*", "DASHSCOPE_*", "ZAI_*", "MINIMAX_*", "OLLAMA_*", "LITELLM_*", "HF_TOKEN"),
)
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "claude": _CLAUDE,
    "cline": ("CLINE_*", *_ANY_MODEL),
    "codex": ("OPENAI_*", "AZURE_OPENAI_*", "CODEX_*", "RUST_LOG"),
    "copilot": ("COPILOT_*", "GH_TOKEN", "GITHUB_TOKEN", "GH_HOST"),
    "dcode": ("DCODE_*", "DEEPAGENTS_*", "LANGSMITH_*", "LANGCHAIN_*", "TAVILY_*", *_ANY_MODEL),
    "droid": ("FACTORY_*", "DROID_*"),
    "fast-agent": ("FAST_AGENT_*", *_ANY_MODEL),
    "gemini": ("GEMINI_*", "GOOGLE_*"),
    "goose": ("GOOSE_*", "DATABRICKS_*", *_ANY_MODEL),
    "grok": ("GROK_*", "XAI_*"),
    "hermes": ("HERMES_*", "NOUS_*", *_ANY_MODEL),
    "kilo": ("KILO_*", "KILOCODE_*", *_ANY_MODEL),
    "kimi": ("KIMI_*", "MOONSHOT_*"),
    "opencode": ("OPENCODE_*", *_ANY_MODEL),
    "openhands": ("OPENHANDS_*", "LLM_*", *_ANY_MODEL),
    "pi": ("PI_*", *_ANY_MODEL),
    # Settings of the built-in agent; tokens of a hub are never passed on, see `_NEVER`.
    "quarterdeck": (
        "QUARTERDECK_MODEL",
        "QUARTERDECK_BASE_URL",
        "QUARTERDECK_CONFIG",
        "QUARTERDECK_SESSIONS",
        HIDDEN_VARIABLE,
        *_ANY_MODEL,
    ),
    "qwen": ("QWEN_*", "DASHSCOPE_*", "OPENAI_*", "MODELSCOPE_*"),
    "vibe": ("VIBE_*", "MISTRAL_*"),
}
"""By the first part of the name of an agent, or of a program in its command line."""

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
    for name, patterns in _KEYS.items():
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


DEMO: Final = "demo"
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A variable of the environment in the value of a header."""

WELL_KNOWN: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "claude": ("claude-agent-acp", ()),
    "claude-code": ("claude-code-acp", ()),
    "cline": ("cline", ("--acp",)),
    "codex": ("codex-acp", ()),
    "copilot": ("copilot", ("--acp",)),
    "dcode": ("dcode", ("--acp",)),
    "droid": ("droid", ("exec", "--output-format", "acp")),
    "fast-agent": ("fast-agent-acp", ()),
    "gemini": ("gemini", ("--acp",)),
    "goose": ("goose", ("acp",)),
    "grok": ("grok", ("agent", "--no-leader", "stdio")),
    "hermes": ("hermes-acp", ()),
    "kilo": ("kilo", ("acp",)),
    "kimi": ("kimi", ("acp",)),
    "opencode": ("opencode", ("acp",)),
    "openhands": ("openhands", ("acp", "--override-with-envs")),
    "pi": ("pi-acp", ()),
    "qwen": ("qwen", ("--acp",)),
    "vibe": ("vibe-acp", ()),
}
"""The program and the arguments that start each well-known agent."""
_NEWEST_PROTOCOL: Final = frozenset({"claude", "codex"})
"""Well-known agents that were tested with version 2 of ACP; see docs/use/agents.md."""


def expand_headers(templates: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return headers with the values of the variables that they name; raise KeyError for others."""

    def value(found: re.Match[str]) -> str:
        return environ[found[1]]

    return {name: VARIABLE.sub(value, text) for name, text in templates.items()}


class SandboxSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sandbox of an agent, or of a project; see `machine.WorkspaceSandbox`."""

    sandbox: SandboxMode = "off"
    """workspace: write only beneath the session's folder."""
    sandbox_write: tuple[str, ...] = ()
    """Further folders to write in, such as the agent's own in the home folder."""
    sandbox_hosts: tuple[str, ...] = ()
    """Hosts that can be reached; none: no network."""
    sandbox_limits: SandboxLimits = SandboxLimits()


class AgentSettings(SandboxSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of an agent."""

    command: str = ""
    args: tuple[str, ...] = ()
    url: str | None = None
    """Where the agent runs, instead of a command: http and https for Streamable HTTP, ws and wss
    for a WebSocket."""
    headers: dict[str, str] = {}
    """Sent to the `url`; `${NAME}` is a variable of the hub's environment."""
    env: dict[str, str] = {}
    """Set in addition to the variables that it gets from the hub's environment."""
    pass_env: tuple[str, ...] = ()
    """Names of further variables that it gets from the hub's environment; `*` is a wildcard."""
    cwd: str | None = None
    """The folder in which its process runs; each session has its own folder."""
    protocol: Literal["auto", 1, 2] | None = None
    """The version of ACP to speak with it: the newest that it has, or exactly one; 1 by default."""
    confine: ConfineMode | None = None
    """Whether it is kept from the hub's folders; the setting of the hub by default."""


class KnownAgent(Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent that can be started by its name."""

    name: str
    command: str
    """Empty for an agent at a URL."""
    args: tuple[str, ...]
    source: Literal["configured", "built-in", "well-known"]
    installed: bool
    """Whether its program was found on this machine."""
    env_names: tuple[str, ...] = ()
    """Names of the variables that its configuration sets; values are never shown."""
    url: str | None = None
    """Where it runs, if it is not started here; without its query."""
    header_names: tuple[str, ...] = ()
    confinement: ConfinementStatus | None = None
    """What keeps it from the hub's folders and processes; the runner knows."""


class KnownAgents:
    """Finds agents by name; a configured agent replaces a well-known one."""

    def __init__(
        self,
        configured: Mapping[str, AgentSettings],
        environ: Mapping[str, str],
        pass_env: Iterable[str] = (),
    ) -> None:
        self._path = environ.get("PATH")
        self.environment = Environment(environ, for_all=pass_env)
        self.configure(configured)

    def configure(self, configured: Mapping[str, AgentSettings]) -> None:
        """Replace the configured agents."""
        self._configured = dict(configured)
        self.environment.by_agent = {name: agent.pass_env for name, agent in configured.items()}

    @property
    def configured(self) -> tuple[str, ...]:
        """The names of configured agents."""
        return tuple(self._configured)

    def __contains__(self, name: str) -> bool:
        return name in self._configured or name == DEMO or name in WELL_KNOWN

    def all(self) -> list[KnownAgent]:
        """Return configured agents, the demo agent, then well-known ones; searches `PATH`."""
        listed = [self._known(name, "configured") for name in self._configured]
        if DEMO not in self._configured:
            listed.append(self._known(DEMO, "built-in"))
        others = [name for name in WELL_KNOWN if name not in self._configured]
        return listed + [self._known(name, "well-known") for name in others]

    def settings(self, name: str) -> AgentSettings | None:
        """Return how to start an agent; None if no agent has this name."""
        if name in self._configured:
            return self._configured[name]
        if name == DEMO:
            # The interpreter that runs the hub; `PATH` may have another `quarterdeck`.
            acp = ("-m", "quarterdeck", "acp", "--model", "demo")
            return AgentSettings(command=sys.executable, args=acp)
        if name not in WELL_KNOWN:
            return None
        command, args = WELL_KNOWN[name]
        protocol: Literal["auto"] | None = "auto" if name in _NEWEST_PROTOCOL else None
        return AgentSettings(command=command, args=args, protocol=protocol)

    def definition(self, name: str) -> AgentDefinition | None:
        settings = self.settings(name)
        if settings is None:
            return None
        return AgentDefinition(
            id=name,
            command=settings.command,
            args=settings.args,
            env=settings.env or None,
            cwd=settings.cwd,
            url=settings.url,
            headers=self._headers(name, settings.headers) or None,
            protocol=settings.protocol,
        )

    def _headers(self, name: str, templates: Mapping[str, str]) -> dict[str, str]:
        """Return headers with the values of the variables that they name.

        Raises:
            RequestRejected: if one of them is not set.
        """
        try:
            return expand_headers(templates, self.environment.all)
        except KeyError as error:
            reason = f"agents.{name}.headers needs the variable {error.args[0]}, which is not set"
            raise RequestRejected("not-startable", f"{reason}; export it and restart") from error

    def _known(
        self, name: str, source: Literal["configured", "built-in", "well-known"]
    ) -> KnownAgent:
        settings = self.settings(name)
        assert settings is not None
        if settings.url is not None:
            return KnownAgent(
                name=name,
                command="",
                args=(),
                source=source,
                installed=True,
                url=shown_url(settings.url),
                header_names=tuple(sorted(settings.headers)),
            )
        path = settings.env.get("PATH", self._path)
        folder = Path(settings.cwd or ".")
        command = settings.command
        if "/" in command and not Path(command).is_absolute():
            command = str(folder / command)
        return KnownAgent(
            name=name,
            command=settings.command,
            args=settings.args,
            source=source,
            installed=shutil.which(command, path=path) is not None,
            env_names=tuple(sorted(settings.env)),
        )

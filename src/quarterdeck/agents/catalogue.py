"""Agents that the hub can start by name: those set up in its configuration, and well-known ones.

What agents get to see of the hub's environment: a list of names, not all of it. Pure.

A hub is started from a shell that knows more than an agent needs: addresses of databases, keys of
other agents, tokens. Every agent gets what programs need to run at all; one that is known by its
name or program also gets its own keys; the rest has to be named in the configuration.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Final, Literal

from msgspec import Struct

from quarterdeck.protocol import AgentDefinition

EVERYBODY: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TMP", "TEMP", "HOSTNAME"),
    *("LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TERM_PROGRAM*", "COLORTERM", "COLUMNS", "LINES"),
    *("NO_COLOR", "FORCE_COLOR", "CLICOLOR*", "LS_COLORS", "EDITOR", "VISUAL", "PAGER", "BROWSER"),
    *("XDG_*", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS"),
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_TTY", "GNUPGHOME"),
    *("GIT_AUTHOR_*", "GIT_COMMITTER_*", "GIT_SSH*", "GIT_EDITOR", "GIT_CONFIG_GLOBAL"),
    # Without these nothing reaches the network in many companies.
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
"""What every program may need; none of it is a key."""

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
_OWN: Final[Mapping[str, tuple[str, ...]]] = {
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
    # Of our own agent: its settings. What lets one in to a hub is never passed on.
    "quarterdeck": (
        "QUARTERDECK_MODEL",
        "QUARTERDECK_BASE_URL",
        "QUARTERDECK_CONFIG",
        "QUARTERDECK_SESSIONS",
        *_ANY_MODEL,
    ),
    "qwen": ("QWEN_*", "DASHSCOPE_*", "OPENAI_*", "MODELSCOPE_*"),
    "vibe": ("VIBE_*", "MISTRAL_*"),
}
"""By the beginning of an agent's name, or of a program in its command line."""

_NEVER: Final = re.compile(r"QUARTERDECK_(HOME|([A-Z]+_)*TOKEN)")
_CREDENTIAL: Final = re.compile(
    r"(^|_)(KEY|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|AUTH|DSN)(_|$)|_URL$",
)
_PACKAGES: Final = "node_modules"
_AROUND: Final = re.compile(r"@[^/]*$|\.(js|mjs|cjs|py|exe|cmd)$")


class Environment:
    """Chooses what of one environment is passed on."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        everybody: Iterable[str] = (),
        named: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """`everybody` and, by the names of agents, `named` are passed on beside what is usual."""
        self._environ = environ
        self._everybody = (*EVERYBODY, *everybody)
        self.named = dict(named or {})

    def common(self) -> dict[str, str]:
        """Return what every program gets, the terminals of agents among them."""
        return self._chosen(self._everybody)

    def of(self, definition: AgentDefinition) -> dict[str, str]:
        """Return what an agent gets."""
        own = own_names((definition.id, definition.command, *definition.args))
        return self._chosen((*self._everybody, *own, *self.named.get(definition.id, ())))

    def withheld(self, definition: AgentDefinition) -> list[str]:
        """Return the names of what looks like keys that an agent does not get."""
        given = {*self.of(definition), *(definition.env or ())}
        return sorted(
            name
            for name in self._environ
            if name not in given and looks_secret(name) and not name.startswith("QUARTERDECK_")
        )

    def _chosen(self, patterns: tuple[str, ...]) -> dict[str, str]:
        return {
            name: value
            for name, value in self._environ.items()
            if not _NEVER.fullmatch(name) and any(fnmatchcase(name, each) for each in patterns)
        }


def own_names(words: Iterable[str]) -> tuple[str, ...]:
    """Return what agents that are named by these words need, as patterns."""
    programs = {_AROUND.sub("", part).lower() for word in words for part in _names_in(word)}
    found: list[str] = []
    for name, patterns in _OWN.items():
        if any(each == name or each.startswith(f"{name}-") for each in programs):
            found.extend(patterns)
    return tuple(found)


def _names_in(word: str) -> tuple[str, ...]:
    """Return the program that a word of a command line names, and its package from npm.

    Folders around it do not count: what somebody's home is called says nothing.
    """
    parts = PurePath(word).parts
    if _PACKAGES in parts:
        return parts[parts.index(_PACKAGES) + 1 :]
    return parts[-1:]


def looks_secret(name: str) -> bool:
    """Whether a variable is called like one with a key in it."""
    return _CREDENTIAL.search(name.upper()) is not None


DEMO: Final = "demo"

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
"""How agents that people have are started: program and arguments."""


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an agent is started that is set up under a name."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """On top of what it gets of the hub's own environment."""
    pass_env: tuple[str, ...] = ()
    """Variables of the hub's environment that it gets beside the usual ones; `*` means any."""
    cwd: str | None = None
    """Where its process runs; sessions have folders of their own."""


class KnownAgent(Struct, frozen=True, kw_only=True, rename="camel"):
    """An agent that can be started by its name."""

    name: str
    command: str
    args: tuple[str, ...]
    source: Literal["configured", "built-in", "well-known"]
    installed: bool
    """Whether its program was found on this computer."""
    env_names: tuple[str, ...] = ()
    """Variables that are set for it; their values are nobody's business."""


class KnownAgents:
    """Finds agents by name; what is configured wins over what is well known."""

    def __init__(
        self,
        configured: Mapping[str, AgentSettings],
        environ: Mapping[str, str],
        pass_env: Iterable[str] = (),
    ) -> None:
        self._path = environ.get("PATH")
        self.environment = Environment(environ, everybody=pass_env)
        self.configure(configured)

    def configure(self, configured: Mapping[str, AgentSettings]) -> None:
        """Know other configured agents from now on."""
        self._configured = dict(configured)
        self.environment.named = {name: agent.pass_env for name, agent in configured.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._configured or name == DEMO or name in WELL_KNOWN

    def all(self) -> list[KnownAgent]:
        """Return all of them: configured ones, the demo, then others by name; looks at files."""
        listed = [self._known(name, "configured") for name in self._configured]
        if DEMO not in self._configured:
            listed.append(self._known(DEMO, "built-in"))
        others = [name for name in WELL_KNOWN if name not in self._configured]
        return listed + [self._known(name, "well-known") for name in others]

    def settings(self, name: str) -> AgentSettings | None:
        """Return how an agent is started; None if there is none of that name."""
        if name in self._configured:
            return self._configured[name]
        if name == DEMO:
            # The program that runs the hub, not whatever PATH has under that name.
            acp = ("-m", "quarterdeck", "acp", "--model", "demo")
            return AgentSettings(command=sys.executable, args=acp)
        if name not in WELL_KNOWN:
            return None
        command, args = WELL_KNOWN[name]
        return AgentSettings(command=command, args=args)

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
        )

    def _known(
        self, name: str, source: Literal["configured", "built-in", "well-known"]
    ) -> KnownAgent:
        settings = self.settings(name)
        assert settings is not None
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

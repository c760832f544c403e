"""How the built-in agent is set up: options of the command, the environment, a file, defaults.

The first that says something wins, in that order. The file is TOML; it is the one named by
`--config` or `QUARTERDECK_CONFIG`, else `quarterdeck/agent.toml` in the user's folder for
configuration, where it may be missing. Keys are never written in it, only the names of the
variables that hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from quarterdeck.errors import ModelFailed, SettingsInvalid

DEMO = "demo"
KINDS = ("anthropic", "google", "openai")
TOKEN_VARIABLE = "QUARTERDECK_ACP_TOKEN"  # noqa: S105 - its name
"""Holds the token of our own server; a command that had it could allow itself everything."""


class Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where models of a provider are, and in which words one talks to them."""

    kind: str = "openai"
    """Which wire format: one of `KINDS`; most servers speak that of OpenAI."""
    base_url: str | None = None
    api_key_env: tuple[str, ...] | str = ()
    """The variable that holds the key, or several: the first that is set counts."""

    @property
    def key_names(self) -> tuple[str, ...]:
        names = self.api_key_env
        return (names,) if isinstance(names, str) else names


PROVIDERS: dict[str, Provider] = {
    "anthropic": Provider(kind="anthropic", api_key_env="ANTHROPIC_API_KEY"),
    "deepseek": Provider(base_url="https://api.deepseek.com/v1", api_key_env="DEEPSEEK_API_KEY"),
    "google": Provider(kind="google", api_key_env=("GOOGLE_API_KEY", "GEMINI_API_KEY")),
    "llamacpp": Provider(base_url="http://127.0.0.1:8080/v1"),
    "lmstudio": Provider(base_url="http://127.0.0.1:1234/v1"),
    "ollama": Provider(base_url="http://127.0.0.1:11434/v1"),
    "openai": Provider(api_key_env="OPENAI_API_KEY"),
    "openrouter": Provider(
        base_url="https://openrouter.ai/api/v1", api_key_env="OPENROUTER_API_KEY"
    ),
    "vllm": Provider(base_url="http://127.0.0.1:8000/v1"),
}


class BuiltinSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the agent may be told; every default is safe."""

    model: str = DEMO
    models: tuple[str, ...] = ()
    """Others that a client may choose."""
    providers: dict[str, Provider] = {}
    """Beside those that we know, or instead of them."""
    max_steps: int = 100
    """Requests to the model in one turn."""
    max_output_tokens: int | None = None
    thinking: Literal["minimal", "low", "medium", "high"] | None = None
    """How much a model thinks that can be told; by default as much as its provider chose."""
    context_window: int | None = None
    """In tokens; 128,000 is assumed for models that nobody knows."""
    stall_seconds: float = 300.0
    """How long a model may be silent."""
    retries: int = 3
    """How often a request is repeated that may succeed a little later."""
    max_retry_seconds: float = 60.0
    """The longest wait before one of these."""
    shell_seconds: float = 120.0
    """How long a command may run unless the model asks for more."""
    fetch_private_addresses: bool = False
    """Whether `fetch` may reach this machine and its network."""
    demo_pause_seconds: float = 0.01
    """Between two words of the demo model."""


class ProviderKeys:
    """The keys found in the environment; not shown by `repr`, never stored."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def first(self, names: tuple[str, ...]) -> str | None:
        return next((self._values[name] for name in names if self._values.get(name)), None)

    def removed_from(self, text: str) -> str:
        """Return `text` without any key: providers quote them in their complaints."""
        for value in sorted(self._values.values(), key=len, reverse=True):
            if len(value) > 3:
                text = text.replace(value, "[key]")
        return text

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._values)


class Setup(Struct, frozen=True, kw_only=True):
    """Settings, and what the environment adds to them."""

    settings: BuiltinSettings
    secrets: ProviderKeys
    environ: dict[str, str]
    """For commands and servers that the agent starts: ours without the keys and our token."""

    def provider(self, name: str) -> Provider | None:
        return self.settings.providers.get(name) or PROVIDERS.get(name)

    def key(self, name: str) -> str | None:
        """Return the key of a provider; None if it needs none.

        Raises:
            ModelFailed: if it is not in the environment. A known provider that was moved to
                another address may be a server of one's own, which wants no key.
        """
        provider = self.provider(name)
        assert provider is not None
        key = self.secrets.first(provider.key_names)
        known = PROVIDERS.get(name)
        is_moved = known is not None and known.base_url != provider.base_url
        if key is None and provider.key_names and not is_moved:
            variables = " or ".join(provider.key_names)
            sentence = f"{name} needs a key; set {variables} and start the agent again"
            raise ModelFailed("setup", sentence)
        return key


def load_setup(
    environ: Mapping[str, str], *, model: str | None = None, config: str | None = None
) -> Setup:
    """Put the settings together.

    Raises:
        SettingsInvalid: if the file or a variable cannot be used.
    """
    known = _read_file(environ, config)
    chosen = model or environ.get("QUARTERDECK_MODEL") or known.get("model", DEMO)
    settings = _convert({**known, "model": chosen}, config or "the configuration file")
    if base_url := environ.get("QUARTERDECK_BASE_URL"):
        settings = _with_base_url(settings, base_url)
    for name in (settings.model, *settings.models):
        _require_known(settings, name)
    secrets = _secrets(settings, environ)
    hidden = {*secrets.names, TOKEN_VARIABLE}
    rest = {name: value for name, value in environ.items() if name not in hidden}
    return Setup(settings=settings, secrets=secrets, environ=rest)


def split_model(name: str) -> tuple[str, str]:
    """Return the provider and the model's own name, which may have colons itself."""
    provider, _, model = name.partition(":")
    return provider, model


def _read_file(environ: Mapping[str, str], config: str | None) -> dict[str, Any]:
    named = config or environ.get("QUARTERDECK_CONFIG")
    path = Path(named) if named else _default_path(environ)
    if path is None or (named is None and not path.exists()):
        return {}
    import tomllib  # noqa: PLC0415 - most users have no such file, and it is slow to import

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SettingsInvalid(str(path), "there is no such file; check --config") from error
    except OSError as error:
        raise SettingsInvalid(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise SettingsInvalid(str(path), f"is not TOML: {error}") from error


def _default_path(environ: Mapping[str, str]) -> Path | None:
    if folder := environ.get("XDG_CONFIG_HOME"):
        return Path(folder, "quarterdeck", "agent.toml")
    if home := environ.get("HOME"):
        return Path(home, ".config", "quarterdeck", "agent.toml")
    return None


def _convert(known: dict[str, Any], source: str) -> BuiltinSettings:
    try:
        return msgspec.convert(known, BuiltinSettings)
    except msgspec.ValidationError as error:
        raise SettingsInvalid(source, f"{error}; see the table in docs/builtin-agent.md") from error


def _with_base_url(settings: BuiltinSettings, base_url: str) -> BuiltinSettings:
    """Let a variable say where the chosen model's provider is: handy for a server of one's own."""
    name, _ = split_model(settings.model)
    provider = settings.providers.get(name) or PROVIDERS.get(name)
    if provider is None:
        return settings
    moved = msgspec.structs.replace(provider, base_url=base_url)
    return msgspec.structs.replace(settings, providers={**settings.providers, name: moved})


def _require_known(settings: BuiltinSettings, model: str) -> None:
    provider, name = split_model(model)
    known = sorted({*PROVIDERS, *settings.providers})
    if model == DEMO:
        return
    if not name:
        advice = "name a model as provider:model, for example openai:gpt-5, or demo"
        raise SettingsInvalid(f"model {model!r}", advice)
    if provider not in known:
        advice = f"there is no provider {provider!r}; choose from {', '.join(known)}"
        raise SettingsInvalid(f"model {model!r}", advice)
    kind = (settings.providers.get(provider) or PROVIDERS[provider]).kind
    if kind not in KINDS:
        advice = f"the kind {kind!r} is not known; choose from {', '.join(KINDS)}"
        raise SettingsInvalid(f"provider {provider!r}", advice)


def _secrets(settings: BuiltinSettings, environ: Mapping[str, str]) -> ProviderKeys:
    providers = {**PROVIDERS, **settings.providers}.values()
    names = {name for provider in providers for name in provider.key_names}
    return ProviderKeys({name: environ[name] for name in sorted(names) if environ.get(name)})

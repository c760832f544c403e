"""Configuration of the built-in agent: command-line options, environment, file, defaults.

The first of these that sets a value wins. The file is TOML: the one named by `--config` or
`QUARTERDECK_CONFIG`, else `quarterdeck/agent.toml` in the user's configuration folder, where it may
be missing. It never contains keys, only the names of the variables that hold them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from quarterdeck.errors import ModelFailed, SettingsInvalid
from quarterdeck.jsontext import describe_mismatch
from quarterdeck.machine.hidden import HIDDEN_VARIABLE, NOTHING_HIDDEN, HiddenFolders

DEMO = "demo"
KINDS = ("anthropic", "google", "openai")
TOKEN_VARIABLE = "QUARTERDECK_ACP_TOKEN"  # noqa: S105 - its name
"""Holds the token of our own server; a command that knew it could approve its own requests."""


class Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The address and API format of a model provider."""

    kind: str = "openai"
    """API format, one of `KINDS`; most servers implement OpenAI's."""
    base_url: str | None = None
    api_key_env: tuple[str, ...] | str = ()
    """The variable that holds the key, or several: the first that is set is used."""

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
    """Settings of the agent; every default is safe."""

    model: str = DEMO
    models: tuple[str, ...] = ()
    """Other models that a client may choose."""
    providers: dict[str, Provider] = {}
    """Added to `PROVIDERS`, or replacing entries of it."""
    max_steps: int = 100
    """Requests to the model in one turn."""
    max_output_tokens: int | None = None
    thinking: Literal["minimal", "low", "medium", "high"] | None = None
    """How much the model thinks, if it can be set; the provider's choice by default."""
    context_window: int | None = None
    """In tokens; 128,000 is assumed for unknown models."""
    stall_seconds: float = 300.0
    """How long a model may send nothing."""
    retries: int = 3
    """How often a failed request is retried."""
    max_retry_seconds: float = 60.0
    """The longest wait before a retry."""
    shell_seconds: float = 120.0
    """How long a command may run by default; the model can set another limit."""
    fetch_private_addresses: bool = False
    """Whether `fetch` may access this machine and its network."""
    demo_pause_seconds: float = 0.01
    """Pause between two words of the demo model."""


class ProviderKeys:
    """Keys found in the environment; not in `repr`, never stored."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def first(self, names: tuple[str, ...]) -> str | None:
        return next((self._values[name] for name in names if self._values.get(name)), None)

    def redacted(self, text: str) -> str:
        """Return `text` without keys: providers quote them in their errors."""
        for value in sorted(self._values.values(), key=len, reverse=True):
            if len(value) > 3:
                text = text.replace(value, "[key]")
        return text

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._values)


class Setup(Struct, frozen=True, kw_only=True):
    """Settings, keys and environment."""

    settings: BuiltinSettings
    keys: ProviderKeys
    environ: dict[str, str]
    """For commands and MCP servers: ours without the keys and our token."""
    hidden: HiddenFolders = NOTHING_HIDDEN
    """Folders of a hub, which tools keep out of."""

    def provider(self, name: str) -> Provider | None:
        return self.settings.providers.get(name) or PROVIDERS.get(name)

    def key(self, name: str) -> str | None:
        """Return the key of a provider; None if it needs none.

        Raises:
            ModelFailed: if it is not in the environment. A known provider with another address
                may be a self-hosted server, which needs no key.
        """
        provider = self.provider(name)
        assert provider is not None
        key = self.keys.first(provider.key_names)
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
    """Combine options, environment, file and defaults.

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
    keys = _provider_keys(settings, environ)
    hidden = {*keys.names, TOKEN_VARIABLE}
    rest = {name: value for name, value in environ.items() if name not in hidden}
    return Setup(settings=settings, keys=keys, environ=rest, hidden=hidden_folders(environ))


def hidden_folders(environ: Mapping[str, str]) -> HiddenFolders:
    """Return the folders of the hub that started this agent, or of one that this user may run."""
    given = environ.get(HIDDEN_VARIABLE, "").split(os.pathsep)
    home, folders = environ.get("HOME"), [path for path in given if path]
    for variable, inside in (("XDG_DATA_HOME", ".local/share"), ("XDG_CONFIG_HOME", ".config")):
        if base := environ.get(variable) or (f"{home}/{inside}" if home else ""):
            folders.append(f"{base}/quarterdeck")
    if own := environ.get("QUARTERDECK_HOME"):
        folders.append(own)
    return HiddenFolders(folders)


def split_model(name: str) -> tuple[str, str]:
    """Return the provider and the provider's name of the model, which may have colons."""
    provider, _, model = name.partition(":")
    return provider, model


def _read_file(environ: Mapping[str, str], config: str | None) -> dict[str, Any]:
    named = config or environ.get("QUARTERDECK_CONFIG")
    path = Path(named) if named else _default_path(environ)
    if path is None or (named is None and not path.exists()):
        return {}
    import tomllib  # noqa: PLC0415 - slow to import, and few users have a file

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise SettingsInvalid(str(path), "there is no such file; check --config") from error
    except OSError as error:
        raise SettingsInvalid(str(path), f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise SettingsInvalid(str(path), f"is not TOML: {error}; fix it and try again") from error


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
        raise SettingsInvalid(source, describe_mismatch(error, BuiltinSettings)) from error


def _with_base_url(settings: BuiltinSettings, base_url: str) -> BuiltinSettings:
    """Set the address of the chosen model's provider, for self-hosted servers."""
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


def _provider_keys(settings: BuiltinSettings, environ: Mapping[str, str]) -> ProviderKeys:
    providers = {**PROVIDERS, **settings.providers}.values()
    names = {name for provider in providers for name in provider.key_names}
    return ProviderKeys({name: environ[name] for name in sorted(names) if environ.get(name)})

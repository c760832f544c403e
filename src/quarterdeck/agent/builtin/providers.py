"""Find the model for a name; what a provider needs is imported when it is first asked for."""

from __future__ import annotations

from quarterdeck.agent.builtin.demo import DemoModel
from quarterdeck.agent.builtin.model import Model
from quarterdeck.agent.builtin.settings import DEMO, Setup, split_model
from quarterdeck.errors import ModelFailed


def open_model(name: str, setup: Setup) -> Model:
    """Return the model of that name.

    Raises:
        ModelFailed: if it cannot be used: a key or a package is missing.
    """
    settings = setup.settings
    if name == DEMO:
        return DemoModel(
            pause_seconds=settings.demo_pause_seconds, context_window=settings.context_window
        )
    provider_name, model_name = split_model(name)
    provider = setup.provider(provider_name)
    if provider is None or not model_name:
        raise ModelFailed("setup", f"there is no model {name!r}; name it as provider:model")
    key = setup.key(provider_name)
    try:
        from quarterdeck.agent.builtin.pydantic_model import (  # noqa: PLC0415 - optional, and slow
            PydanticModel,
        )

        return PydanticModel(name, model_name, provider, key, setup)
    except ImportError as error:
        sentence = f"the packages for {provider_name} are not installed"
        raise ModelFailed("setup", f"{sentence}; pip install 'quarterdeck[agent]'") from error

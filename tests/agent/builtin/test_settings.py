"""Settings: options win over the environment, that over the file, that over the defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from quarterdeck.agent.builtin import load_setup
from quarterdeck.errors import ModelFailed, SettingsInvalid


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_without_anything_the_model_is_demo() -> None:
    assert load_setup({}).settings.model == "demo"


def test_the_first_source_with_a_value_wins(tmp_path: Path) -> None:
    write(tmp_path / "quarterdeck/agent.toml", 'model = "ollama:file"\nmax_steps = 3')
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert load_setup(environ).settings.model == "ollama:file"
    assert load_setup(environ).settings.max_steps == 3
    environ["QUARTERDECK_MODEL"] = "ollama:environment"
    assert load_setup(environ).settings.model == "ollama:environment"
    assert load_setup(environ, model="ollama:option").settings.model == "ollama:option"


def test_a_file_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.toml", 'model = "vllm:x"')
    assert load_setup({"QUARTERDECK_CONFIG": path}).settings.model == "vllm:x"
    other = write(tmp_path / "b.toml", 'model = "vllm:y"')
    assert load_setup({"QUARTERDECK_CONFIG": path}, config=other).settings.model == "vllm:y"


def test_a_provider_of_ones_own_is_known(tmp_path: Path) -> None:
    text = """
        model = "work:big"
        [providers.work]
        kind = "anthropic"
        base_url = "https://models.example/v1"
        api_key_env = "WORK_KEY"
    """
    setup = load_setup({"WORK_KEY": "sk-1"}, config=write(tmp_path / "a.toml", text))
    provider = setup.provider("work")
    assert provider is not None
    assert setup.keys.first(provider.key_names) == "sk-1"


def test_a_variable_moves_the_provider_of_the_chosen_model() -> None:
    environ = {"QUARTERDECK_MODEL": "openai:x", "QUARTERDECK_BASE_URL": "http://there/v1"}
    provider = load_setup(environ).provider("openai")
    assert provider is not None
    assert provider.base_url == "http://there/v1"
    assert provider.key_names == ("OPENAI_API_KEY",)


def test_a_server_of_ones_own_needs_no_key() -> None:
    environ = {"QUARTERDECK_MODEL": "openai:x", "QUARTERDECK_BASE_URL": "http://127.0.0.1:1/v1"}
    assert load_setup(environ).key("openai") is None
    with pytest.raises(ModelFailed, match="set OPENAI_API_KEY"):
        load_setup({}).key("openai")
    with pytest.raises(ModelFailed, match="set GOOGLE_API_KEY or GEMINI_API_KEY"):
        load_setup({}).key("google")
    assert load_setup({}).key("ollama") is None


def test_keys_are_not_shown_and_not_handed_to_commands() -> None:
    token = {"QUARTERDECK_ACP_TOKEN": "with it a command could allow itself everything"}
    setup = load_setup({"OPENAI_API_KEY": "sk-secret", "EDITOR": "vi", **token})
    assert "sk-secret" not in repr(setup)
    assert setup.environ == {"EDITOR": "vi"}
    assert setup.keys.redacted("wrong key sk-secret!") == "wrong key [key]!"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("model = ", "is not TOML"),
        ("modell = 1", 'unknown field "modell"; did you mean "model"'),
        ("max_steps = 'x'", "max_steps"),
        ("model = 'gpt-5'", "name a model as provider:model"),
        ("model = 'nobody:gpt-5'", "there is no provider 'nobody'"),
        ("model = 'a:b'\nproviders.a.kind = 'telex'", "the kind 'telex' is not known"),
        ("providers.a.api_key = 'sk'", 'unknown field "api_key"'),
    ],
)
def test_what_cannot_be_used_is_explained(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(SettingsInvalid, match=reason):
        load_setup({}, config=write(tmp_path / "a.toml", text))


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match="no such file"):
        load_setup({}, config=str(tmp_path / "a.toml"))

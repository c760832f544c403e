"""Agents that only the table of abilities runs: each has a fault that `test_sessions` would hit."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.real_agents.agents import RealAgent, claude_environ, codex_config

_SECONDS: Final = 120


def _pi_models(url: str) -> Any:
    price = {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0}
    limits = {"contextWindow": 200000, "maxTokens": 8000}
    model = {"id": "fake-model", "name": "Fake", "input": ["text"], "cost": price, **limits}
    service = {"baseUrl": f"{url}/v1", "api": "openai-completions", "apiKey": "sk-fake"}
    return {"providers": {"fake": {**service, "models": [model]}}}


def _droid_settings(url: str) -> Any:
    model = {
        "model": "fake-model",
        "displayName": "Fake",
        "baseUrl": f"{url}/v1",
        "apiKey": "sk-fake",
        "provider": "generic-chat-completion-api",
        "maxOutputTokens": 8000,
    }
    return {"customModels": [model], "enableTelemetry": False}


def _kimi_cli_config(url: str) -> str:
    return f"""\
default_model = "fake"
default_thinking = true
[models.fake]
provider = "fake"
model = "fake-model"
max_context_size = 200000
capabilities = ["thinking"]
[providers.fake]
type = "kimi"
base_url = "{url}/v1"
api_key = "sk-fake"
"""


def _sign_in_to_cline(program: Path, environ: Mapping[str, str], url: str) -> None:
    account = ("-p", "openai-compatible", "-k", "sk-fake", "-m", "fake-model")
    command = [str(program), "auth", *account, "-b", f"{url}/v1"]
    _run(command, environ)


_OPENHANDS_SETTINGS: Final = """
import sys
from openhands.sdk import LLM
from openhands_cli.stores.agent_store import AgentStore
from openhands_cli.utils import get_default_cli_agent
model = {"model": "openai/fake-model", "api_key": "sk-fake", "base_url": sys.argv[1]}
AgentStore().save(get_default_cli_agent(LLM(**model, usage_id="agent")))
"""


def _write_openhands_settings(program: Path, environ: Mapping[str, str], url: str) -> None:
    python = str(program.with_name("python"))
    _run([python, "-c", _OPENHANDS_SETTINGS, f"{url}/v1"], environ)


def _run(command: list[str], environ: Mapping[str, str]) -> None:
    nothing = subprocess.DEVNULL
    done = subprocess.run(
        command, env=environ, stdin=nothing, capture_output=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, (command, done.stderr[-2000:])


def _openhands_environ(url: str) -> Mapping[str, str]:
    return {
        "LLM_API_KEY": "sk-fake",
        "LLM_MODEL": "openai/fake-model",
        "LLM_BASE_URL": f"{url}/v1",
        "OPENHANDS_SUPPRESS_BANNER": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
    }


MORE_AGENTS: Final = (
    RealAgent(
        name="claude-code",
        package="@zed-industries/claude-code-acp@0.16.2",
        program=".bin/claude-code-acp",
        environ=claude_environ,
    ),
    RealAgent(
        name="codex-zed",
        package="@zed-industries/codex-acp@0.16.0",
        program=".bin/codex-acp",
        environ=lambda url: {"NO_BROWSER": "1", "RUST_LOG": "error"},
        files=lambda url: {".codex/config.toml": codex_config(url)},
        mode="read-only",
    ),
    RealAgent(
        name="droid",
        package="droid@0.215.0",
        program=".bin/droid",
        args=("exec", "--output-format", "acp"),
        environ=lambda url: {
            "FACTORY_API_KEY": "fk-fake",
            "DROID_DISABLE_AUTO_UPDATE": "true",
            "FACTORY_DROID_AUTO_UPDATE_ENABLED": "false",
        },
        files=lambda url: {".factory/settings.json": _droid_settings(url)},
        options=(("model", "custom:Fake-0"),),
    ),
    RealAgent(
        name="cline",
        package="cline@3.0.65",
        program=".bin/cline",
        args=("--acp",),
        environ=lambda url: {
            "CLINE_TELEMETRY_DISABLED": "1",
            "CLINE_API_KEY": "sk-fake",
            "CLINE_PROVIDER": "openai-compatible",
            "CLINE_MODEL": "fake-model",
        },
        prepare=_sign_in_to_cline,
    ),
    RealAgent(
        name="pi",
        package="pi-acp@0.0.34",
        program=".bin/pi-acp",
        environ=lambda url: {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"},
        files=lambda url: {
            ".pi/agent/models.json": _pi_models(url),
            ".pi/agent/settings.json": {
                "defaultProvider": "fake",
                "defaultModel": "fake-model",
                "enableInstallTelemetry": False,
            },
        },
    ),
    RealAgent(
        name="openhands",
        package="openhands==1.16.0",
        program="openhands",
        registry="pypi",
        args=("acp", "--override-with-envs"),
        environ=_openhands_environ,
        prepare=_write_openhands_settings,
    ),
    RealAgent(
        name="dcode",
        package="deepagents-code==0.1.57",
        program="dcode",
        registry="pypi",
        args=("--acp", "--no-mcp", "--model", "openai:fake-model"),
        environ=lambda url: {
            "OPENAI_API_KEY": "sk-fake",
            "OPENAI_BASE_URL": f"{url}/v1",
            "LANGSMITH_TRACING": "false",
            "DEEPAGENTS_CODE_NO_UPDATE_CHECK": "1",
        },
    ),
    RealAgent(
        name="kimi-cli",
        package="kimi-cli==1.9",
        program="kimi",
        registry="pypi",
        args=("acp",),
        environ=lambda url: {"KIMI_CLI_NO_AUTO_UPDATE": "1", "KIMI_API_KEY": "sk-fake"},
        files=lambda url: {".kimi/config.toml": _kimi_cli_config(url)},
    ),
)

"""Agents that other people wrote: where they come from, and how they reach our model server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

VARIABLE: Final = "QUARTERDECK_REAL_AGENTS"
_VERSIONS: Final[tuple[Literal[1, 2], ...]] = (1, 2)
Files = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RealAgent:
    name: str
    package: str
    """With its version."""
    program: str
    registry: Literal["npm", "pypi"] = "npm"
    args: tuple[str, ...] = ()
    environ: Callable[[str], Mapping[str, str]] = lambda url: {}
    """What it needs of the environment, given the address of the model server."""
    files: Callable[[str], Files] = lambda url: {}
    """What it needs in the home of its user: text, or anything for JSON."""
    after_rejection: tuple[int, ...] = (0,)
    """With what `run` may end when a call was rejected."""
    choices: tuple[str, ...] = ()
    """Options of `run` that make it ask before it runs a command."""
    protocol: Literal[1, 2] = 1
    """The version of ACP to speak with it."""
    deed: str = "[run touch {work}/made]"
    """What it asks for permission for: a marker for the model server that makes a file."""
    runs_commands: bool = True
    shell_args: tuple[str, ...] = ()
    """Further arguments that give it a shell; only the table of abilities has them."""
    reopens: bool = True
    """Whether a new process of it can go on with a session."""
    asks_for_edits: bool = True
    mode: str | None = None
    """The mode in which it asks for permission, if that is not its first."""
    options: tuple[tuple[str, str], ...] = ()
    """Options of its sessions, with their values."""
    prepare: Callable[[Path, Mapping[str, str], str], None] | None = None
    """What else it needs once, given its program, an environment and the model server."""

    @property
    def label(self) -> str:
        """Its name, and the version of ACP if that is not the first."""
        return self.name if self.protocol == 1 else f"{self.name}-acp{self.protocol}"

    def command(self, folder: Path) -> Path:
        """Return its program in the folder of agents."""
        place = "node_modules" if self.registry == "npm" else "bin"
        return folder / self.name / place / self.program

    def installation(self, folder: Path) -> str:
        """Return what installs it."""
        place = folder / self.name
        if self.registry == "npm":
            return f"npm install --prefix {place} {self.package}"
        return f"python3 -m venv {place} && {place}/bin/pip install {self.package}"

    def configuration(self, folder: Path, url: str, program: Path | None = None) -> str:
        """Return its part of hub.toml; its program is in the folder of agents by default."""
        environ = ", ".join(
            f"{name} = {json.dumps(text)}" for name, text in self.environ(url).items()
        )
        return (
            f"[agents.{self.name}]\n"
            f"command = {json.dumps(str(program or self.command(folder)))}\n"
            f"args = {json.dumps(self.args)}\n"
            f"env = {{ {environ} }}\n"
            f"protocol = {self.protocol}\n"
        )

    def settle(self, home: Path, url: str) -> None:
        """Write its own configuration."""
        for name, content in self.files(url).items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = content if isinstance(content, str) else json.dumps(content)
            path.write_text(text, encoding="utf-8")


def agents_folder() -> Path:
    """Return where agents are installed, each in a folder of its own."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    return Path.home() / ".cache" / "quarterdeck" / "real-agents"


def _goose_environ(url: str) -> Mapping[str, str]:
    return {
        "OPENAI_HOST": url,
        "OPENAI_API_KEY": "sk-fake",
        "GOOSE_DISABLE_KEYRING": "1",
        "GOOSE_MODE": "approve",
        "GOOSE_TELEMETRY_ENABLED": "false",
    }


_GOOSE_CONFIG: Final = """\
GOOSE_PROVIDER: openai
GOOSE_MODEL: gpt-4o
GOOSE_MODE: approve
GOOSE_TELEMETRY_ENABLED: false
extensions:
  developer: {enabled: true, type: builtin, name: developer, timeout: 300, bundled: true}
"""


def _qwen_environ(url: str) -> Mapping[str, str]:
    return {
        "OPENAI_API_KEY": "sk-fake",
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_MODEL": "fake-model",
        "QWEN_CODE_NO_RELAUNCH": "true",
    }


def claude_environ(url: str) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-ant-fake",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "IS_SANDBOX": "",  # root may not have it
    }


def _gemini_environ(url: str) -> Mapping[str, str]:
    return {
        "GEMINI_API_KEY": "fake",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_MODEL": "gemini-2.5-flash",
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_TELEMETRY_ENABLED": "false",
    }


def _quiet(kind: str) -> Any:
    """Return the settings of gemini, and of qwen, which is made from it."""
    return {
        "security": {"auth": {"selectedType": kind}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
    }


def _opencode_config(url: str) -> Any:
    model = {"name": "Fake", "tool_call": True, "limit": {"context": 200000, "output": 8000}}
    options = {"baseURL": f"{url}/v1", "apiKey": "sk-fake"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Fake", "options": options}
    return {
        "autoupdate": False,
        "share": "disabled",
        "model": "fake/fake-model",
        "small_model": "fake/fake-model",
        "permission": {"edit": "ask", "bash": "ask", "webfetch": "ask"},
        "provider": {"fake": {**provider, "models": {"fake-model": model}}},
    }


def codex_config(url: str) -> str:
    return f"""\
model = "gpt-5.5"
model_provider = "fake"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.fake]
name = "fake"
base_url = "{url}/v1"
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 1
stream_max_retries = 1
"""


def _copilot_environ(url: str) -> Mapping[str, str]:
    return {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": "sk-fake",
        "COPILOT_MODEL": "fake-model",
        "COPILOT_AUTO_UPDATE": "false",
    }


def _kimi_config(url: str) -> str:
    return f"""\
default_model = "fake"
[models.fake]
provider = "fake"
model = "fake-model"
max_context_size = 200000
capabilities = ["thinking", "tool_use"]
[providers.fake]
type = "kimi"
base_url = "{url}/v1"
api_key = "sk-fake"
"""


def _grok_config(url: str) -> str:
    return f"""\
[models]
default = "fake"
[model.fake]
model = "fake-model"
base_url = "{url}/v1"
name = "Fake"
api_key = "sk-fake"
context_window = 200000
[telemetry]
enabled = false
[cli]
auto_update = false
use_leader = false
"""


def _hermes_config(url: str) -> str:
    return f"""\
model:
  default: fake-model
  provider: custom
  base_url: {url}/v1
  api_key: sk-fake
  context_length: 200000
approvals:
  mode: manual
"""


def _vibe_config(url: str) -> str:
    return f"""\
active_model = "fake"
enable_telemetry = false
enable_update_checks = false
enable_auto_update = false
[[providers]]
name = "fakeprov"
api_base = "{url}/v1"
api_key_env_var = "MISTRAL_API_KEY"
backend = "generic"
[[models]]
name = "fake-model"
provider = "fakeprov"
alias = "fake"
temperature = 0.2
input_price = 0.4
output_price = 2.0
"""


AGENTS: Final = (
    RealAgent(
        name="goose",
        package="@aaif/goose-binary-linux-x64@1.52.0",
        program="@aaif/goose-binary-linux-x64/bin/goose",
        args=("acp",),
        environ=_goose_environ,
        files=lambda url: {".config/goose/config.yaml": _GOOSE_CONFIG},
    ),
    RealAgent(
        name="qwen",
        package="@qwen-code/qwen-code@0.24.4",
        program=".bin/qwen",
        args=("--acp",),
        environ=_qwen_environ,
        files=lambda url: {".qwen/settings.json": _quiet("openai")},
        mode="default",  # it starts in one that edits files without asking
    ),
    RealAgent(
        name="claude",
        package="@agentclientprotocol/claude-agent-acp@0.99.1",
        program=".bin/claude-agent-acp",
        environ=claude_environ,
    ),
    RealAgent(
        name="claude",
        package="@agentclientprotocol/claude-agent-acp@0.99.1",
        program=".bin/claude-agent-acp",
        environ=claude_environ,
        protocol=2,
    ),
    *(
        RealAgent(
            name="codex",
            package="@agentclientprotocol/codex-acp@2.6.0",
            program=".bin/codex-acp",
            environ=lambda url: {"NO_BROWSER": "1", "RUST_LOG": "error"},
            files=lambda url: {".codex/config.toml": codex_config(url)},
            after_rejection=(130,),  # it cancels the turn
            choices=("--mode", "read-only"),  # the others let a model of its own decide
            mode="read-only",
            protocol=version,
        )
        for version in _VERSIONS
    ),
    RealAgent(
        name="gemini",
        package="@google/gemini-cli@0.61.0",
        program=".bin/gemini",
        args=("--acp",),
        environ=_gemini_environ,
        files=lambda url: {".gemini/settings.json": _quiet("gemini-api-key")},
        reopens=False,  # it can once; then its file of the session is gone
    ),
    RealAgent(
        name="opencode",
        package="opencode-ai@1.18.33",
        program=".bin/opencode",
        args=("acp",),
        environ=lambda url: {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        },
        files=lambda url: {".config/opencode/opencode.json": _opencode_config(url)},
    ),
    RealAgent(
        name="copilot",
        package="@github/copilot@1.0.102",
        program=".bin/copilot",
        args=("--acp",),
        environ=_copilot_environ,
    ),
    RealAgent(
        name="kimi",
        package="@moonshot-ai/kimi-code@2.1.0",
        program=".bin/kimi",
        args=("acp",),
        environ=lambda url: {"KIMI_CODE_NO_AUTO_UPDATE": "1", "KIMI_DISABLE_TELEMETRY": "1"},
        files=lambda url: {".kimi-code/config.toml": _kimi_config(url)},
    ),
    RealAgent(
        name="grok",
        package="@xai-official/grok@1.0.41",
        program=".bin/grok",
        args=("agent", "--no-leader", "stdio"),
        environ=lambda url: {
            "XAI_API_KEY": "xai-fake",
            "GROK_XAI_API_BASE_URL": f"{url}/v1",
            "GROK_DISABLE_AUTOUPDATER": "1",
            "GROK_TELEMETRY_ENABLED": "false",
        },
        files=lambda url: {".grok/config.toml": _grok_config(url)},
        after_rejection=(130,),  # it cancels the turn
        deed="[write {work}/made]",  # it asks for few commands
    ),
    RealAgent(
        name="kilo",
        package="@kilocode/cli@7.7.7",
        program=".bin/kilo",
        args=("acp",),
        environ=lambda url: {
            "KILO_DISABLE_AUTOUPDATE": "1",
            "KILO_DISABLE_MODELS_FETCH": "1",
            "KILO_DISABLE_LSP_DOWNLOAD": "1",
            "KILO_TELEMETRY_LEVEL": "off",
        },
        files=lambda url: {".config/kilo/kilo.json": _opencode_config(url)},
    ),
    RealAgent(
        name="hermes",
        package="hermes-agent[acp]==0.19.0",
        program="hermes-acp",
        registry="pypi",
        environ=lambda url: {"OPENAI_API_KEY": "sk-fake", "OPENAI_BASE_URL": f"{url}/v1"},
        files=lambda url: {".hermes/config.yaml": _hermes_config(url)},
        deed="[write {work}/made]",  # it asks for few commands
    ),
    RealAgent(
        name="fast-agent",
        package="fast-agent-mcp==0.10.46",
        program="fast-agent-acp",
        registry="pypi",
        environ=lambda url: {
            "FAST_AGENT_MODEL": "generic.fake-model",
            "GENERIC_API_KEY": "sk-fake",
            "GENERIC_BASE_URL": f"{url}/v1",
        },
        deed="[write {work}/made]",
        runs_commands=False,
        shell_args=("--shell",),
    ),
    RealAgent(
        name="vibe",
        package="mistral-vibe==3.0.2",
        program="vibe-acp",
        registry="pypi",
        environ=lambda url: {"MISTRAL_API_KEY": "fake"},
        files=lambda url: {".vibe/config.toml": _vibe_config(url)},
        mode="ask",
    ),
)

"""SIGHUP: the configuration is read again, as by other services; an invalid one changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anyio import to_thread

from quarterdeck.cli.config import NOT_A_FILE, HubConfig, config_path, hub_options, load_config
from quarterdeck.cli.hub_access import HubAddress
from quarterdeck.errors import SettingsInvalid
from quarterdeck.hub.options import HubOptions

_LIVE: Final = (
    "agents",
    "catalogue",
    "mcp",
    "policy",
    "approvals",
    "sessions",
    "retention",
    "confine",
    "projects",
)


async def reload_config(
    address: HubAddress, started_with: HubConfig, apply: Callable[[HubOptions], None]
) -> str:
    """Apply what can change while a process runs; return what happened and what needs a restart."""
    path, _ = config_path(address.environ, address.config_file)
    if started_with != HubConfig() and path is not None and not path.exists():
        return f"{path} does not exist any more; the configuration is unchanged"
    if path is not None and path.exists() and not path.is_file():
        # Reading a pipe without a writer would block, and signals with it.
        return f"{path} {NOT_A_FILE}; the configuration is unchanged"
    try:
        config = await to_thread.run_sync(load_config, address.environ, address.config_file)
    except SettingsInvalid as error:
        return f"{error}; the configuration is unchanged"
    apply(hub_options(config, home=address.home, environ=address.environ))
    fixed = [
        name
        for name in HubConfig.__struct_fields__
        if name not in _LIVE and getattr(config, name) != getattr(started_with, name)
    ]
    later = f"; [{'], ['.join(fixed)}] take effect at the next start" if fixed else ""
    return f"configuration reloaded: {_summary(config)}{later}"


def _summary(config: HubConfig) -> str:
    agents, rules = len(config.agents), len(config.policy.rule)
    return f"{agents} agent{'s' * (agents != 1)}, {rules} rule{'s' * (rules != 1)}"

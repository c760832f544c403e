"""The configuration read again while the hub runs: at SIGHUP, as services do.

What is wrong in it changes nothing. A terminal that is closed sends the same signal; then the hub
ends as it does at Ctrl-C.
"""

from __future__ import annotations

import os

from anyio import to_thread

from quarterdeck.cli.hub_config import NO_FILE, HubConfig, config_path, hub_options, load_config
from quarterdeck.cli.hub_link import Place
from quarterdeck.cli.screen import say
from quarterdeck.errors import SettingsInvalid
from quarterdeck.server.hub import Hub

_LIVE = ("agents", "policy", "approvals", "sessions", "retention")


def has_terminal() -> bool:
    """Whether there is a terminal that this process would lose."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


async def reread(hub: Hub, place: Place, began_with: HubConfig) -> None:
    """Take over what can change while the hub runs, and say what cannot."""
    path, _ = config_path(place.environ, place.config_file)
    if began_with != HubConfig() and path is not None and not path.exists():
        say(f"{path} is gone; nothing was changed, the hub goes on as it was")
        return
    if path is not None and path.exists() and not path.is_file():
        say(f"{path} {NO_FILE}; nothing was changed, the hub goes on as it was")
        return  # before a pipe that nobody writes to is waited for, and signals with it
    try:
        config = await to_thread.run_sync(load_config, place.environ, place.config_file)
    except SettingsInvalid as error:
        say(f"{error}; nothing was changed, the hub goes on as it was")
        return
    hub.reconfigure(hub_options(config, home=place.home, environ=place.environ))
    fixed = [
        name
        for name in HubConfig.__struct_fields__
        if name not in _LIVE and getattr(config, name) != getattr(began_with, name)
    ]
    later = f"; [{'], ['.join(fixed)}] count from the next start on" if fixed else ""
    say(f"the configuration was read again: {_counted(config)}{later}")


def _counted(config: HubConfig) -> str:
    agents, rules = len(config.agents), len(config.policy.rule)
    return f"{agents} agent{'s' * (agents != 1)}, {rules} rule{'s' * (rules != 1)}"

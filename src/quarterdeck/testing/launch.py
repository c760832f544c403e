"""Where scenarios come from, and the command line that plays one.

The agent starts through this module, and pathlib takes a quarter of that time to import: paths are
plain texts here.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from quarterdeck.errors import ScenarioInvalid
from quarterdeck.testing.scenario import Scenario, parse_scenario, read_scenario

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT_VARIABLE: Final = "QUARTERDECK_SCENARIO"
"""Where the agent finds its scenario, as JSON, if its command line names none."""

_SHIPPED: Final = f"{__file__.rpartition('/')[0]}/scenarios"


def scenario_names() -> list[str]:
    """Return the names of the scenarios that are shipped."""
    with os.scandir(_SHIPPED) as entries:
        return sorted(entry.name.removesuffix(".toml") for entry in entries)


def load_scenario(scenario: str | Path | Mapping[str, Any]) -> Scenario:
    """Read and check a scenario: a name of `scenario_names()`, a file, or a table like one.

    Raises:
        ScenarioInvalid: if there is no such scenario, or it cannot be played.
    """
    if isinstance(scenario, Mapping):
        return read_scenario(scenario, "the scenario")
    try:
        path = _path(scenario)
        # The agent will read it again, so it has to be there twice, and to have an end.
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116  # see above
            raise ScenarioInvalid(str(scenario), "it is no regular file; copy it into one")
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  # see above
            text = file.read()
    except FileNotFoundError as error:
        names = ", ".join(scenario_names())
        raise ScenarioInvalid(
            str(scenario), f"there is no such file; shipped are {names}"
        ) from error
    except (OSError, ValueError) as error:  # a text that is not UTF-8, a name with a NUL
        raise ScenarioInvalid(str(scenario), f"{error}; is it a text file?") from error
    return parse_scenario(text, str(scenario))


def scripted_agent(
    scenario: str | Path | Mapping[str, Any], *, pace: float = 1.0
) -> tuple[str, ...]:
    """Return the command that plays a scenario as an ACP agent on its standard input and output.

    Every pause takes `pace` times as long; with 0 there are none.

    Raises:
        ScenarioInvalid: if there is no such scenario, or it cannot be played.
    """
    load_scenario(scenario)
    # -P: the agent is started in folders of others, whose modules must not be taken for Python's.
    command = (sys.executable, "-P", "-m", "quarterdeck.testing.agent", "--pace", f"{pace:g}")
    if isinstance(scenario, Mapping):
        return (*command, "--json", json.dumps(scenario))
    return (*command, _path(scenario))


def _path(scenario: str | Path) -> str:
    """Return the absolute path of a scenario: agents are started in other folders than ours."""
    if scenario in scenario_names():
        return f"{_SHIPPED}/{scenario}.toml"
    path = os.fspath(scenario)
    return path if path.startswith("/") else f"{os.getcwd()}/{path}"  # noqa: PTH109  # see above

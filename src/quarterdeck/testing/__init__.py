"""For tests of programs that talk to agents: a scripted ACP agent and scenarios for it.

Standard library only, and quick to import: the agent itself starts through this package.
"""

from quarterdeck.testing.scenario import Scenario, load_scenario, scenario_names, scripted_agent

__all__ = ["Scenario", "load_scenario", "scenario_names", "scripted_agent"]

"""Test your ACP client against a scripted agent and its scenarios.

Standard library only and quick to import, because the agent process imports this package, too.
"""

from quarterdeck.testing.scenario import Scenario, load_scenario, scenario_names, scripted_agent

__all__ = ["Scenario", "load_scenario", "scenario_names", "scripted_agent"]

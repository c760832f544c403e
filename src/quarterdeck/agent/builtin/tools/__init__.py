"""The tools of the built-in agent."""

from quarterdeck.agent.builtin.tools.base import Action, Outcome, Scope, Tool, shortened
from quarterdeck.agent.builtin.tools.catalogue import TOOLS

__all__ = ["TOOLS", "Action", "Outcome", "Scope", "Tool", "shortened"]

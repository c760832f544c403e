"""The built-in coding agent."""

from quarterdeck.agent.builtin.agent import BuiltinAgent
from quarterdeck.agent.builtin.settings import Provider, Settings, Setup, load_setup

__all__ = ["BuiltinAgent", "Provider", "Settings", "Setup", "load_setup"]

"""The built-in coding agent. Light to import: see `agent`."""

from quarterdeck.agent.builtin.agent import BuiltinAgent
from quarterdeck.agent.builtin.settings import BuiltinSettings, Provider, Setup, load_setup

__all__ = ["BuiltinAgent", "BuiltinSettings", "Provider", "Setup", "load_setup"]

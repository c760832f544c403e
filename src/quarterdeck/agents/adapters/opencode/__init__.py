"""OpenCode: the store of its sessions, and its server where it listens."""

from quarterdeck.agents.adapters.opencode.adapter import OpenCodeAdapter

__all__ = ["OpenCodeAdapter"]

"""Codex: the rollout files of its sessions."""

from quarterdeck.agents.adapters.codex.adapter import CodexAdapter

__all__ = ["CodexAdapter"]

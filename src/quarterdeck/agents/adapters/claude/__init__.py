"""Claude Code: its transcripts, its running sessions, and its hooks."""

from quarterdeck.agents.adapters.claude.adapter import ClaudeAdapter

__all__ = ["ClaudeAdapter"]

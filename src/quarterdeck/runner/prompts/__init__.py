"""Prompts: stored, queued, run in order."""

__all__: list[str] = []

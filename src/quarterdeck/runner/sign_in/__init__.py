"""Signing in to agents: what they offer, terminals for it, and what to do when it is missing."""

__all__: list[str] = []

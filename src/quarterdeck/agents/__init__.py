"""Agents: the catalogue of known ones, detection, and adapters for sessions."""

__all__: list[str] = []

"""Agents that speak ACP 2: their connection looks like one of ACP 1 to the rest of the host."""

__all__: list[str] = []

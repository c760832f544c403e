"""The catalogue of agents, their detection, and adapters of the Agent Context Protocol."""

__all__: list[str] = []

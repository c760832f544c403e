"""`/api/context`: the Agent Context Protocol (seed 000) over a WebSocket."""

__all__: list[str] = []

"""Streams over the shared log: SSE and `/api/envelope`."""

__all__: list[str] = []

"""Sessions of a host: their life cycle, their registry, recovery after a restart."""

__all__: list[str] = []

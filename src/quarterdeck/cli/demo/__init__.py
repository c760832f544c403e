"""`quarterdeck demo`: with a hub, or without."""

__all__: list[str] = []

"""The folders that sessions work in."""

__all__: list[str] = []

"""The hub: one server for every surface."""

__all__: list[str] = []

"""Other vocabularies for the same log."""

__all__: list[str] = []

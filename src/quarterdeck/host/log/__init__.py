"""The log: numbering, the journal, repair, streams."""

__all__: list[str] = []

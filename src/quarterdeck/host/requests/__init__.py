"""What agents request: permissions, elicitations, files, terminals."""

__all__: list[str] = []

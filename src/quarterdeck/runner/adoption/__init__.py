"""Sessions of programs that are not run here, recorded as every other session."""

__all__: list[str] = []

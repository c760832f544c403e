"""Sessions: started, reopened, listed, stopped when idle, deleted."""

__all__: list[str] = []

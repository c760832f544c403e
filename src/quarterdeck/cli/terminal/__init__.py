"""What people see and type: the screen, printed sessions, requests of agents."""

__all__: list[str] = []

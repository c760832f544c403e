"""What must not stop: sessions, the prompt queue, permission requests, retention."""

__all__: list[str] = []

"""Web push: which device is notified of what, encryption, delivery."""

__all__: list[str] = []

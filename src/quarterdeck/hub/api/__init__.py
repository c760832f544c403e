"""The HTTP API, one module for each noun; `quarterdeck.hub.server` joins them."""

__all__: list[str] = []

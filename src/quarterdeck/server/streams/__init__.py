"""Everything that happens, as it happens: event streams and WebSockets over the shared log."""

from quarterdeck.server.streams.endpoints import stream_endpoints

__all__ = ["stream_endpoints"]

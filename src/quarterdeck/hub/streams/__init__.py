"""Everything that happens, as it happens: event streams and WebSockets over the shared log."""

from quarterdeck.hub.streams.endpoints import stream_endpoints
from quarterdeck.hub.streams.sources import StreamSources

__all__ = ["StreamSources", "stream_endpoints"]

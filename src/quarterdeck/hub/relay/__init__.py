"""A hub that its phones reach through a relay."""

from quarterdeck.hub.relay.service import RelayService

__all__ = ["RelayService"]

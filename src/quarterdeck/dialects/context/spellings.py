"""The names of the original that begin with an acronym, as the rest of this package spells them."""

from __future__ import annotations

from quarterdeck.dialects.context.capabilities import ACPCapabilities as AcpCapabilities
from quarterdeck.dialects.context.commands import ACPCommand as AcpCommand
from quarterdeck.dialects.context.events import ACPEvent as AcpEvent, ACPEventBase as AcpEventBase
from quarterdeck.dialects.context.filters import ACPEventByPrefix as AcpEventByPrefix

__all__ = ["AcpCapabilities", "AcpCommand", "AcpEvent", "AcpEventBase", "AcpEventByPrefix"]

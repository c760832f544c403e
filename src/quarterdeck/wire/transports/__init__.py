"""Transports: byte streams that carry messages."""

from quarterdeck.wire.transports.base import ByteTransport
from quarterdeck.wire.transports.file_descriptors import FdTransport, stdio_transport
from quarterdeck.wire.transports.memory import MemoryTransport, memory_pair
from quarterdeck.wire.transports.process import ProcessTransport, open_process

__all__ = [
    "ByteTransport",
    "FdTransport",
    "MemoryTransport",
    "ProcessTransport",
    "memory_pair",
    "open_process",
    "stdio_transport",
]

"""All packets that a computer sends and receives."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Final, NamedTuple

from tests.proof.network import inside

_ALL_PROTOCOLS: Final = 3
_PACKET_LEVEL: Final = 263
_STATISTICS: Final = 6
_IPV4: Final = b"\x08\x00"
_TCP: Final = 6
_SYN: Final = 2


class Ends(NamedTuple):
    """One direction of a connection."""

    source: str
    source_port: int
    target: str
    target_port: int


class Capture:
    """Keeps the packets of all cables of a computer, from now on."""

    def __init__(self, place: str) -> None:
        self.packets: list[bytes] = []
        self._is_ended = threading.Event()
        self._socket = inside(place, self._open)
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    @staticmethod
    def _open() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        made.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        made.settimeout(0.2)
        return made

    def _receive(self) -> None:
        while not self._is_ended.is_set():
            try:
                self.packets.append(self._socket.recv(1 << 18))
            except TimeoutError:
                continue

    def end(self) -> None:
        """Stop; fail if a packet was missed."""
        self._is_ended.set()
        self._thread.join()
        counted = self._socket.getsockopt(_PACKET_LEVEL, _STATISTICS, 8)
        self._socket.close()
        assert struct.unpack("II", counted)[1] == 0, "packets are missing in the capture"

    def flows(self) -> dict[Ends, bytes]:
        """Return what was sent over TCP, in order and once."""
        pieces: dict[Ends, list[tuple[int, bytes]]] = {}
        starts: dict[Ends, int] = {}
        for packet in self.packets:
            found = _segment(packet)
            if found is None:
                continue
            ends, number, is_first, content = found
            if is_first or ends not in starts:
                starts[ends] = number + is_first
            if content:
                offset = (number - starts[ends]) % (1 << 32)
                pieces.setdefault(ends, []).append((offset, content))
        return {ends: _joined(each) for ends, each in pieces.items()}


def _segment(packet: bytes) -> tuple[Ends, int, bool, bytes] | None:
    """Return the ends of a TCP packet, its number, whether it is the first, and its content."""
    if packet[12:14] != _IPV4 or packet[23] != _TCP:
        return None
    whole = packet[14 : 14 + int.from_bytes(packet[16:18], "big")]
    tcp = whole[(whole[0] & 15) * 4 :]
    source_port, target_port, number = struct.unpack_from("!HHI", tcp)
    source, target = (socket.inet_ntoa(whole[at : at + 4]) for at in (12, 16))
    content = tcp[(tcp[12] >> 4) * 4 :]
    return Ends(source, source_port, target, target_port), number, bool(tcp[13] & _SYN), content


def _joined(pieces: list[tuple[int, bytes]]) -> bytes:
    joined = bytearray()
    for offset, content in sorted(pieces):
        if offset <= len(joined):
            joined += content[len(joined) - offset :]
    return bytes(joined)

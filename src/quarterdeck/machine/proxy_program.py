"""The HTTP proxy of a workspace sandbox: connects to the hosts of a list, and to no other.

    python -I -S proxy_program.py SOCKET HOSTS

`workspace_program` starts it and sends it a listening socket through `SOCKET`. `HOSTS` is a list
separated by commas: `name`, `*.name` for everything below a name, each with `:port` (443 and 80
without one). `CONNECT` and requests with a whole URL are served; a URL is passed on over a new
connection for each request.

A name is resolved here, and only public addresses are used: a name that the agent controls must not
lead to this machine or its network, where the hub listens. A private address works if the list has
it as a number. What an allowed host does with a request cannot be limited.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import threading

_HEAD_BYTES = 64 * 1024
_PIECE = 64 * 1024
_CONNECT_SECONDS = 30
_CONNECTIONS = 256
_PORTS = (443, 80)


class Rejected(Exception):
    """The request is not served; `status` and the message are the answer."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


def is_allowed(host: str, port: int, hosts: list[str]) -> bool:
    """Return whether the list has a host with this port."""
    name = host.lower().rstrip(".")
    for entry in hosts:
        pattern, _, number = entry.lower().partition(":")
        if (port not in _PORTS) if not number else (port != int(number)):
            continue
        if name == pattern or (pattern.startswith("*.") and name.endswith(pattern[1:])):
            return True
    return False


def addresses(host: str, port: int) -> list[str]:
    """Resolve a host; raises `Rejected` if that leads to an address that is not public."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [host]  # the list has the number itself
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Rejected("502 Bad Gateway", f"{host} cannot be resolved") from error
    numbers = [str(each[4][0]) for each in found]
    if not all(ipaddress.ip_address(number.partition("%")[0]).is_global for number in numbers):
        raise Rejected("403 Forbidden", f"{host} has an address that is not public")
    return numbers


def connect(host: str, port: int, hosts: list[str]) -> socket.socket:
    """Connect to an allowed host; raises `Rejected`."""
    if not is_allowed(host, port, hosts):
        reason = f"{host}:{port} is not in the network list of this sandbox; see hub.toml"
        raise Rejected("403 Forbidden", reason)
    for number in addresses(host, port):
        try:
            return socket.create_connection((number, port), timeout=_CONNECT_SECONDS)
        except OSError:
            continue
    raise Rejected("502 Bad Gateway", f"{host}:{port} cannot be reached")


def read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """Return the head of a request and what follows it."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(_PIECE)
        if not piece or len(data) > _HEAD_BYTES:
            raise Rejected("400 Bad Request", "the request has no head, or a very long one")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def split_address(text: str, port: int) -> tuple[str, int]:
    """Return host and port of `host`, `host:port` or `[address]:port`."""
    host, separator, number = text.rpartition(":")
    if not separator or "]" in number:
        host, number = text, str(port)
    if not number.isdigit() or not 0 < int(number) < 65536:
        raise Rejected("400 Bad Request", "the address has no valid port")
    return host.strip("[]"), int(number)


def open_request(head: bytes, rest: bytes, hosts: list[str]) -> tuple[socket.socket, bool]:
    """Connect as a request asks; return the connection, and whether it is a tunnel."""
    first, _, headers = head.partition(b"\r\n")
    words = first.decode("latin-1").split(" ")
    if len(words) != 3:
        raise Rejected("400 Bad Request", "the request line is not valid")
    method, target, version = words
    if method == "CONNECT":
        server = connect(*split_address(target, 443), hosts)
        server.sendall(rest)
        return server, True
    if not target.startswith("http://"):
        raise Rejected("400 Bad Request", "a proxy takes whole URLs")
    address, slash, path = target.removeprefix("http://").partition("/")
    server = connect(*split_address(address.rpartition("@")[2], 80), hosts)
    kept = [line for line in headers.split(b"\r\n") if not _is_hop(line)]
    lines = [f"{method} {slash or '/'}{path} {version}".encode("latin-1"), *kept]
    server.sendall(b"\r\n".join([*lines, b"Connection: close", b"", b""]) + rest)
    return server, False


def _is_hop(line: bytes) -> bool:
    name = line.partition(b":")[0].strip().lower()
    return name in (b"proxy-connection", b"connection", b"keep-alive", b"proxy-authorization")


def serve(client: socket.socket, hosts: list[str]) -> None:
    """Serve one connection to its end."""
    with client:
        try:
            head, rest = read_head(client)
            server, is_tunnel = open_request(head, rest, hosts)
        except Rejected as rejected:
            text = f"{rejected}\n".encode()
            answer = f"HTTP/1.1 {rejected.status}\r\nContent-Length: {len(text)}\r\n"
            answer += "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
            client.sendall(answer.encode() + text)
            return
        with server:
            server.settimeout(None)
            if is_tunnel:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=copy, args=(server, client), daemon=True)
            back.start()
            copy(client, server)
            back.join()


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy to the end, then end the other side."""
    try:
        while piece := source.recv(_PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:  # one side has closed
        for each in (source, target):
            try:  # noqa: SIM105 - `contextlib` would be imported for this alone
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def main(arguments: list[str]) -> None:
    with socket.socket(fileno=int(arguments[0])) as channel:
        _, fds, _, _ = socket.recv_fds(channel, 1, 1)
    if not fds:
        return  # the sandbox was not made
    _close_outputs()
    hosts = [entry for entry in arguments[1].split(",") if entry]
    slots = threading.BoundedSemaphore(_CONNECTIONS)

    def work(client: socket.socket) -> None:
        try:
            serve(client, hosts)
        except OSError:
            pass  # the client is gone
        finally:
            slots.release()

    with socket.socket(fileno=fds[0]) as listening:
        while True:
            slots.acquire()
            client, _ = listening.accept()
            threading.Thread(target=work, args=(client,), daemon=True).start()


def _close_outputs() -> None:
    """Give up the command's pipes: they must end with the command."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)


if __name__ == "__main__":
    main(sys.argv[1:])

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from quarterdeck.errors import StartRefused
from quarterdeck.hub.listeners import Inherited, open_listeners


def _given(family: socket.AddressFamily, address: str) -> Inherited:
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((address, 0))
    return Inherited(tcp=[listener])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
@pytest.mark.parametrize(
    ("family", "address"), [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]
)
def test_a_given_socket_that_others_reach_is_refused_by_a_local_hub(
    tmp_path: Path, host: str, family: socket.AddressFamily, address: str
) -> None:
    with (
        pytest.raises(StartRefused, match="quarterdeck service install"),
        open_listeners(tmp_path, host, 0, _given(family, address)),
    ):
        pass


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "0.0.0.0")])
def test_a_given_socket_is_used(tmp_path: Path, host: str, address: str) -> None:
    given = _given(socket.AF_INET, address)
    port = given.tcp[0].getsockname()[1]
    with open_listeners(tmp_path, host, 0, given) as listeners:
        assert listeners.port == port

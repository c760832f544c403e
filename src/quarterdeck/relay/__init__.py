"""A relay passes phones' TLS to hubs that dial out to it, and can read none of it."""

from quarterdeck.relay.addresses import RelayAddress, relay_address
from quarterdeck.relay.client_hello import ClientHello, HelloRejected, read_client_hello
from quarterdeck.relay.keys import (
    RelayIdentity,
    TunnelKey,
    relay_identity,
    server_context,
    tunnel_key,
)
from quarterdeck.relay.limits import RelayLimits
from quarterdeck.relay.server import Relay
from quarterdeck.relay.settings import AcmeSettings, RelaySettings
from quarterdeck.relay.state import CertificateKind, CertificateState, RelayState
from quarterdeck.relay.tunnel import RelayTunnel

__all__ = [
    "AcmeSettings",
    "CertificateKind",
    "CertificateState",
    "ClientHello",
    "HelloRejected",
    "Relay",
    "RelayAddress",
    "RelayIdentity",
    "RelayLimits",
    "RelaySettings",
    "RelayState",
    "RelayTunnel",
    "TunnelKey",
    "read_client_hello",
    "relay_address",
    "relay_identity",
    "server_context",
    "tunnel_key",
]

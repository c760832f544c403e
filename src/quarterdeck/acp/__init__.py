"""The Agent Client Protocol: types, methods, decoding and encoding, typed calls.

Types of version 1 are in `schema`, methods in `methods`:
`methods.SESSION_NEW.read_response(result)`. Version 2 has its own in `quarterdeck.acp.v2`.
"""

from quarterdeck.acp import methods, schema
from quarterdeck.acp.calls import Method, NotificationMethod, Side
from quarterdeck.acp.codec import Received, decode, enc_hook, encode, receive, to_dict
from quarterdeck.acp.field_rules import UNSTABLE_FIELDS, UNSTABLE_TYPES
from quarterdeck.acp.lenient import dec_hook, lenient
from quarterdeck.acp.methods import PROTOCOL_VERSION
from quarterdeck.acp.model import AcpObject, Unknown
from quarterdeck.acp.typed_peer import Handlers, Peer, open_peer

__all__ = [
    "PROTOCOL_VERSION",
    "UNSTABLE_FIELDS",
    "UNSTABLE_TYPES",
    "AcpObject",
    "Handlers",
    "Method",
    "NotificationMethod",
    "Peer",
    "Received",
    "Side",
    "Unknown",
    "dec_hook",
    "decode",
    "enc_hook",
    "encode",
    "lenient",
    "methods",
    "open_peer",
    "receive",
    "schema",
    "to_dict",
]

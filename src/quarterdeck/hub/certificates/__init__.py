"""Certificates that the hub obtains or issues itself."""

from quarterdeck.hub.certificates.authority import (
    PrivateAuthority,
    open_authority,
)

__all__ = ["PrivateAuthority", "open_authority"]

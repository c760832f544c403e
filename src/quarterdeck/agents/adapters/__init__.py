"""Adapters of the Agent Context Protocol: sessions of an agent as context events."""

from quarterdeck.agents.adapters.acp import AcpAdapter, can
from quarterdeck.agents.adapters.acp_session import (
    AcpSession,
    blocks_of,
    context_error,
)

__all__ = ["AcpAdapter", "AcpSession", "blocks_of", "can", "context_error"]

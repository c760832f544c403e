"""Adapters of the Agent Context Protocol: sessions of an agent as context events."""

from quarterdeck.agents.adapters.acp import AcpAdapter
from quarterdeck.agents.adapters.acp_session import AcpSession, context_error

__all__ = ["AcpAdapter", "AcpSession", "context_error"]

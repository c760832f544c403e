"""The catalogue of agents and their detection; `adapters` has the Agent Context Protocol.

Adapters are not exported here: the command line needs the catalogue without loading a host. The
process of a running agent is in `host/agent_process`.
"""

from quarterdeck.agents.catalogue import (
    DEMO,
    WELL_KNOWN,
    AgentSettings,
    Environment,
    KnownAgent,
    KnownAgents,
    SandboxSettings,
    expand_headers,
)
from quarterdeck.agents.detection import AgentFinding, check_agents

__all__ = [
    "DEMO",
    "WELL_KNOWN",
    "AgentFinding",
    "AgentSettings",
    "Environment",
    "KnownAgent",
    "KnownAgents",
    "SandboxSettings",
    "check_agents",
    "expand_headers",
]

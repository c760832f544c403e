"""The catalogue of agents and their detection; `adapters` has the Agent Context Protocol.

Adapters are not exported here: the command line needs the catalogue without loading a host. The
process of a running agent is in `host/agent_process`.
"""

from quarterdeck.agents.catalogue import (
    AgentCatalogue,
    CatalogueEntry,
    RegistryCache,
    built_in_entries,
)
from quarterdeck.agents.detection import AgentFinding, check_agents
from quarterdeck.agents.environment import Environment
from quarterdeck.agents.known_agents import (
    AGENTS_FOLDER,
    DEMO,
    AgentSettings,
    KnownAgent,
    KnownAgents,
    SandboxSettings,
    expand_headers,
    known_agents,
)
from quarterdeck.agents.mcp_servers import (
    McpChoice,
    McpServerSettings,
    McpServerView,
    chosen_servers,
    configured_servers,
    is_added,
    parse_server,
    server_views,
    with_values,
)

__all__ = [
    "AGENTS_FOLDER",
    "DEMO",
    "AgentCatalogue",
    "AgentFinding",
    "AgentSettings",
    "CatalogueEntry",
    "Environment",
    "KnownAgent",
    "KnownAgents",
    "McpChoice",
    "McpServerSettings",
    "McpServerView",
    "RegistryCache",
    "SandboxSettings",
    "built_in_entries",
    "check_agents",
    "chosen_servers",
    "configured_servers",
    "expand_headers",
    "is_added",
    "known_agents",
    "parse_server",
    "server_views",
    "with_values",
]

"""What a projection has to be told, because no log has it: where a session is and whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from quarterdeck.dialects.context.shapes import EnvironmentAgent, EnvironmentRuntime
from quarterdeck.protocol import SessionSnapshotWire

UNKNOWN: Final = "unknown"


class SessionFacts(Struct, frozen=True, kw_only=True):
    """Given once; the same facts and the same log give the same events."""

    session_id: str
    cwd: str = ""
    agent: EnvironmentAgent = EnvironmentAgent(name=UNKNOWN, version=UNKNOWN, display_name=UNKNOWN)
    runtime: EnvironmentRuntime = EnvironmentRuntime(os=UNKNOWN, arch=UNKNOWN)

    @property
    def project_name(self) -> str:
        return self.cwd.rstrip("/").rpartition("/")[2]


def session_facts(
    session: SessionFacts | SessionSnapshotWire | Mapping[str, Any] | str,
) -> SessionFacts:
    """Read the facts from a snapshot of the host, its JSON, or a bare id."""
    if isinstance(session, SessionFacts):
        return session
    if isinstance(session, str):
        return SessionFacts(session_id=session)
    if isinstance(session, Mapping):
        session_id, cwd = session.get("sessionId"), session.get("cwd")
        agent = session.get("agentDefinitionId")
    else:
        session_id, cwd, agent = session.session_id, session.cwd, session.agent_definition_id
    name = agent if isinstance(agent, str) and agent else UNKNOWN
    return SessionFacts(
        session_id=str(session_id),
        cwd=cwd if isinstance(cwd, str) else "",
        agent=EnvironmentAgent(name=name, version=UNKNOWN, display_name=name),
    )

"""The hub as JSON over HTTP, one module for each noun."""

from quarterdeck.server.api.agents import agent_endpoints
from quarterdeck.server.api.approvals import approval_endpoints
from quarterdeck.server.api.files import file_endpoints
from quarterdeck.server.api.folders import folder_endpoints
from quarterdeck.server.api.operations import operation_endpoints
from quarterdeck.server.api.prompts import prompt_endpoints
from quarterdeck.server.api.push import push_endpoints
from quarterdeck.server.api.sessions import session_endpoints
from quarterdeck.server.api.transcript import transcript_endpoints

__all__ = [
    "agent_endpoints",
    "approval_endpoints",
    "file_endpoints",
    "folder_endpoints",
    "operation_endpoints",
    "prompt_endpoints",
    "push_endpoints",
    "session_endpoints",
    "transcript_endpoints",
]

"""The hub as JSON over HTTP, one module for each noun."""

from quarterdeck.hub.api.agents import agent_endpoints
from quarterdeck.hub.api.operations import operation_endpoints
from quarterdeck.hub.api.prompts import prompt_endpoints
from quarterdeck.hub.api.push import push_endpoints
from quarterdeck.hub.api.requests import request_endpoints
from quarterdeck.hub.api.sessions import session_endpoints
from quarterdeck.hub.api.transcript import transcript_endpoints
from quarterdeck.hub.api.workspaces import file_endpoints, folder_endpoints

__all__ = [
    "agent_endpoints",
    "file_endpoints",
    "folder_endpoints",
    "operation_endpoints",
    "prompt_endpoints",
    "push_endpoints",
    "request_endpoints",
    "session_endpoints",
    "transcript_endpoints",
]

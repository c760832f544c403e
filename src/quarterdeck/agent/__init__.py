"""The agent side: serve any agent on stdio and HTTP.

async def echo(turn):
    yield "You said: "
    yield turn.text

serve_stdio(echo)
"""

from quarterdeck.agent.checks import McpServer
from quarterdeck.agent.client import Client, Terminal
from quarterdeck.agent.definition import Agent, Info, Mode, Stop
from quarterdeck.agent.http import HttpApp, HttpOptions, http_app, serve_http
from quarterdeck.agent.serving import AgentServer
from quarterdeck.agent.session import AgentSession
from quarterdeck.agent.stdio import serve_stdio, serve_stdio_async
from quarterdeck.agent.store import SessionStore
from quarterdeck.agent.turn import Turn
from quarterdeck.errors import AgentError, RpcError

__all__ = [
    "Agent",
    "AgentError",
    "AgentServer",
    "AgentSession",
    "Client",
    "HttpApp",
    "HttpOptions",
    "Info",
    "McpServer",
    "Mode",
    "RpcError",
    "SessionStore",
    "Stop",
    "Terminal",
    "Turn",
    "http_app",
    "serve_http",
    "serve_stdio",
    "serve_stdio_async",
]

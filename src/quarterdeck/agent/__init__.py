"""The agent side of ACP: serve any agent on stdio and HTTP; `quarterdeck.host` runs agents.

An agent is an async function of a turn, or an object with a `prompt` method:

async def echo(turn):
    yield "You said: "
    yield turn.text

serve_stdio(echo)
"""

from typing import TYPE_CHECKING, Any

from quarterdeck.agent.checks import McpServer
from quarterdeck.agent.client import ClientProxy, Terminal
from quarterdeck.agent.definition import Agent, Info, Mode, Stop
from quarterdeck.agent.http import HttpApp, HttpOptions, http_app, serve_http
from quarterdeck.agent.server import AgentServer
from quarterdeck.agent.session import AgentSession
from quarterdeck.agent.stdio import serve_stdio, serve_stdio_async
from quarterdeck.agent.store import SessionStore
from quarterdeck.agent.turn import AgentTurn
from quarterdeck.errors import AgentError, RpcError

if TYPE_CHECKING:
    from quarterdeck.agent.builtin import BuiltinAgent


def __getattr__(name: str) -> Any:
    """Import the built-in agent on first use: other agents do not need it."""
    if name == "BuiltinAgent":
        from quarterdeck.agent.builtin import BuiltinAgent  # noqa: PLC0415

        return BuiltinAgent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Agent",
    "AgentError",
    "AgentServer",
    "AgentSession",
    "AgentTurn",
    "BuiltinAgent",
    "ClientProxy",
    "HttpApp",
    "HttpOptions",
    "Info",
    "McpServer",
    "Mode",
    "RpcError",
    "SessionStore",
    "Stop",
    "Terminal",
    "http_app",
    "serve_http",
    "serve_stdio",
    "serve_stdio_async",
]

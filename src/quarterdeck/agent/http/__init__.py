"""Serves an agent on HTTP: requests by POST, everything else by an SSE stream."""

from quarterdeck.agent.http.app import HttpApp, HttpOptions, http_app, serve_http
from quarterdeck.http.sse import ReplayLimits

__all__ = ["HttpApp", "HttpOptions", "ReplayLimits", "http_app", "serve_http"]

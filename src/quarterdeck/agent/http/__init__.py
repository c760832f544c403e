"""Serving an agent on HTTP: requests by POST, everything else by an SSE stream."""

from quarterdeck.agent.http.app import HttpApp, HttpOptions, http_app
from quarterdeck.agent.http.buffer import Limits
from quarterdeck.agent.http.start import serve_http

__all__ = ["HttpApp", "HttpOptions", "Limits", "http_app", "serve_http"]

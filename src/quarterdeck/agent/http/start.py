"""Serving an agent on HTTP: the port, the token, and what is said at the start."""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import anyio

from quarterdeck.agent.definition import Agent, Prompt
from quarterdeck.agent.http.app import HttpOptions, http_app
from quarterdeck.agent.store import SessionStore


def serve_http(
    agent: Agent | Prompt,
    host: str = "127.0.0.1",
    port: int = 9000,
    *,
    store: SessionStore | None = None,
    initial_message: str | None = None,
    options: HttpOptions | None = None,
) -> None:
    """Serve `agent` on HTTP until SIGTERM or Ctrl-C, which leaves by `SystemExit(130)`.

    Without a token in `options` one is made up and shown, with the address, on standard error.

    Raises:
        AgentError: if the token is too short, or none is wanted where others can reach the port.
        OSError: if the port cannot be had.
    """
    # It takes as long to import as all the rest, and an agent on stdio does not need it.
    from quarterdeck.agent.http.serve import serve_app  # noqa: PLC0415

    options = options or HttpOptions()
    made_up = secrets.token_urlsafe(24) if options.needs_token and options.token is None else None
    if made_up is not None:
        options = replace(options, token=made_up)
    app = http_app(agent, options, host=host, store=store, initial_message=initial_message)
    with listening(host, port) as listener:
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listener.getsockname()[1]}"

        def on_ready() -> None:
            _say(f"the agent is at {address}/acp/rpc and {address}/acp/sse")
            if made_up is not None:
                _say(f"its token, new with every start, is {made_up}")
            elif not options.needs_token:
                _say("there is no token: every program on this computer can use it")

        status = anyio.run(serve_app, app, listener, on_ready)
    if status:
        raise SystemExit(status)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Take the port; it is free again when the body ends."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            error.filename = f"{host}:{port}"
            raise
        listener.listen(128)
        yield listener


def _say(text: str) -> None:
    print(f"quarterdeck: {text}", file=sys.stderr, flush=True)  # noqa: T201 - for whoever started it

"""The one HTTP edge: everything that is true of HTTP whatever is served or requested.

`server`, `limits`, `body`, `origins` and `headers` protect a server from strangers; `sse`,
`websocket` and `keepalive` carry streams; `client` and `public_addresses` make requests. Nothing
here knows a web framework, an agent or a hub: applications are plain ASGI callables, passed in by
the caller.

Import from the modules: `server` brings uvicorn with it, and `client` loads httpx with its first
request, so that a command that needs neither starts without them.
"""

from __future__ import annotations

__all__: list[str] = []

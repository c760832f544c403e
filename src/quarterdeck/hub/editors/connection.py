"""`EditorConnection`: one editor and an agent, with every method of ACP that an agent can offer.

Towards the editor it is the agent. It works on the sessions of the runner, so everything is in the
log, and phones and browsers see and control the same session. Sessions continue when the editor
disconnects.

`initialize` chooses the version of ACP for the connection: the newest that is not above the one
that the editor asks for. `MethodsV1` and `MethodsV2` have the methods of each.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from quarterdeck.acp import PROTOCOL_VERSION
from quarterdeck.agent import checks
from quarterdeck.agent.checks import Json
from quarterdeck.agent.client import ClientFacts
from quarterdeck.agent.words_v2 import choose_version, client_info
from quarterdeck.hub.editors.attached import MOST_SESSIONS
from quarterdeck.hub.editors.editor import Editor, as_rpc_errors
from quarterdeck.hub.editors.methods import EditorMethods
from quarterdeck.hub.editors.methods_v1 import MethodsV1
from quarterdeck.hub.editors.methods_v2 import MethodsV2
from quarterdeck.wire import INVALID_REQUEST, method_not_found, rpc_error


class EditorConnection:
    """Give its two functions to a connection, and what comes of that to `attach`."""

    def __init__(self, agent: str, max_sessions: int | None = None) -> None:
        self._agent = agent
        self._most = max_sessions or MOST_SESSIONS
        self._editor: Editor | None = None
        self._methods: EditorMethods | None = None
        self._is_used = False

    def attach(self, editor: Editor) -> None:
        self._editor = editor

    def leave(self) -> None:
        """The editor disconnects; its sessions continue."""
        if self._methods is not None:
            self._methods.leave()

    def on_notification(self, method: str, params: Json) -> None:
        if method == "session/cancel" and self._methods is not None:
            self._methods.on_cancel(str(params.get("sessionId")))

    def on_request(self, method: str, params: Json) -> Awaitable[Any]:
        if method == "initialize":
            return as_rpc_errors(self._initialize(params))
        if self._methods is None:
            raise rpc_error(INVALID_REQUEST, f"call initialize before {method}")
        self._is_used = True
        handler = self._methods.handlers.get(method)
        if handler is None:
            raise method_not_found(method)
        return as_rpc_errors(handler(params))

    def _initialize(self, params: Json) -> Awaitable[Any]:
        assert self._editor is not None, "attached before the first message is read"
        version = choose_version(params)
        if self._methods is not None:
            self._check_repeated(version)
        is_newer = version > PROTOCOL_VERSION
        info = client_info(params) if is_newer else checks.optional_object(params, "clientInfo")
        name = "capabilities" if is_newer else "clientCapabilities"
        self._editor.facts = ClientFacts(info, checks.optional_object(params, name))
        self._editor.version = version
        # At once: what comes right behind need not wait for the agent.
        if self._methods is None:
            make = MethodsV2 if is_newer else MethodsV1
            self._methods = make(self._editor, self._agent, self._most)
        return self._methods.introduce()

    def _check_repeated(self, version: int) -> None:
        """Refuse to change the version of a connection, or to begin one of ACP 2 again."""
        assert self._editor is not None
        if version != self._editor.version:
            message = f"this connection speaks version {self._editor.version}; open another one"
            raise rpc_error(INVALID_REQUEST, message)
        if version > PROTOCOL_VERSION and self._is_used:
            raise rpc_error(INVALID_REQUEST, "initialize must come before any other request")

"""The client knows envelopes, not hosts: it must work where no host is installed."""

from __future__ import annotations

import ast
from pathlib import Path

import quarterdeck.client

ALLOWED = (
    "quarterdeck.client",
    "quarterdeck.protocol",
    "quarterdeck.errors",
    "quarterdeck.jsontext",
    "quarterdeck.http.unix_sockets",  # who listens at a socket, before anything is sent
)


def test_the_client_imports_nothing_of_ours_but_the_protocol_and_errors() -> None:
    for file in Path(quarterdeck.client.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("quarterdeck"):
                assert str(node.module).startswith(ALLOWED), f"{file.name}: {node.module}"

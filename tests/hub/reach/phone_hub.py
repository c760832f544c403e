"""`quarterdeck up --phone` in a network of its own, and programs on a phone in that network."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hub.local_owner import owner_call
from tests.hub.reach.networks import Networks

Json = dict[str, Any]

# Prints the status and the body of a request, made with a pin, with a file of authorities, or both
# without; `address` is connected to, whatever the name of the URL is.
_ASKING = """
import json, socket, ssl, sys, http.client
from urllib.parse import urlsplit
from quarterdeck.http import pinned_context
wanted = json.loads(sys.argv[1])
parts = urlsplit(wanted["url"])
context = pinned_context(wanted["pin"]) if wanted["pin"] else ssl.create_default_context(
    cafile=wanted["authorities"])
try:
    plain = socket.create_connection((wanted["address"] or parts.hostname, parts.port), timeout=20)
    connection = http.client.HTTPConnection(parts.hostname, parts.port)
    connection.sock = context.wrap_socket(plain, server_hostname=parts.hostname)
    body = None if wanted["body"] is None else json.dumps(wanted["body"])
    headers = {"content-type": "application/json"} if body else {}
    connection.request(wanted["method"], parts.path or "/", body, headers | wanted["headers"])
    answer = connection.getresponse()
    said = answer.read().decode()
    print(json.dumps([answer.status, json.loads(said) if said.startswith("{") else said]))
except OSError as error:
    print(json.dumps([0, str(error)]))
"""


@dataclass(frozen=True)
class PhoneHub:
    """A hub that runs."""

    home: Path
    start: Json
    """What `up --json` printed."""
    networks: Networks

    @property
    def reach(self) -> Json:
        found: Json = self.start["reach"]
        return found

    def call(self, method: str, path: str, body: Any = None) -> Any:
        return owner_call(self.home, method, path, body)

    def ask_from_phone(
        self,
        path: str,
        *,
        pin: str | None = None,
        authorities: Path | None = None,
        url: str | None = None,
        **more: Any,
    ) -> tuple[int, Any]:
        """Make a request on the phone; return the status, 0 if there is no answer, and the body."""
        wanted = {
            "url": f"{url or self.reach['url']}{path}",
            "pin": pin,
            "authorities": None if authorities is None else str(authorities),
            "address": None,
            "method": "GET",
            "body": None,
            "headers": {},
            **more,
        }
        command = [*self.networks.in_phone, sys.executable, "-c", _ASKING, json.dumps(wanted)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        status, said = json.loads(done.stdout)
        return status, said


@contextmanager
def phone_hub(
    networks: Networks,
    home: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
) -> Iterator[PhoneHub]:
    """Start a hub for phones on the hub's computer."""
    named = {**os.environ, **(environ or {})}
    command = [*networks.in_hub, sys.executable, "-m", "quarterdeck", "up", "--phone", "--json"]
    process = subprocess.Popen(
        [*command, "--home", str(home), *arguments], stdout=subprocess.PIPE, text=True, env=named
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the hub did not start"
        yield PhoneHub(home, json.loads(line), networks)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        ending = [sys.executable, "-m", "quarterdeck", "down", "--home", str(home)]
        subprocess.run(ending, check=False, capture_output=True, timeout=60)

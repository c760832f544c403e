"""A relay, two hubs, three machines, an ACME authority and a phone, each on its own computer."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from quarterdeck.hub.relay.certificates import OWN_FILE, self_signed
from quarterdeck.machine.home_locks import lock_owner
from tests.certificates import certify_by_authority
from tests.hub.local_owner import owner_call
from tests.proof.network import (
    AUTHORITY,
    DOMAIN,
    SECONDS,
    address,
    cabled,
    connected,
    inside,
    name_host,
    start_in,
    until,
)

COMMAND: Final = (sys.executable, "-m", "quarterdeck")
HUB_PORT: Final = 7272
ACME_PORT: Final = 14000
ROOTS_PORT: Final = 15000
Json = dict[str, Any]


class Computer:
    """A user at a computer."""

    def __init__(self, place: str, folder: Path, config: str = "") -> None:
        self.place = place
        self.folder = folder / place
        self.home = self.folder / "data"
        self.work = self.folder / "work"
        self.work.mkdir(parents=True)
        config_file = self.folder / "hub.toml"
        config_file.write_text(config, encoding="utf-8")
        config_file.chmod(0o600)
        self.environ = {
            **{name: text for name, text in os.environ.items() if "proxy" not in name.lower()},
            "HOME": str(self.folder),
            "QUARTERDECK_HOME": str(self.home),
            "QUARTERDECK_HUB_CONFIG": str(config_file),
        }

    def trust(self, *authorities: Path) -> None:
        """Install authorities, as an administrator would."""
        bundle = self.folder / "authorities.pem"
        bundle.write_bytes(b"".join(each.read_bytes() for each in authorities))
        self.environ["SSL_CERT_FILE"] = str(bundle)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        log = (self.folder / "stderr.log").open("a")
        with log:
            command: subprocess.Popen[str] = start_in(
                self.place,
                *COMMAND,
                *arguments,
                env=self.environ,
                cwd=self.work,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        return command

    def run(self, *arguments: str) -> str:
        """Run a command that succeeds; return what it prints."""
        process = self.start(*arguments)
        printed, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, (arguments, (self.folder / "stderr.log").read_text())
        return printed

    @property
    def runner_pid(self) -> int:
        return int(until(lambda: lock_owner(self.home, "runner")))


class Service:
    """A command that runs until it is killed, and prints one line of JSON when it is ready."""

    def __init__(self, computer: Computer, *arguments: str) -> None:
        self.computer = computer
        self._arguments = arguments
        self.start()

    def start(self) -> None:
        self.process = self.computer.start(*self._arguments)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.computer.folder / "stderr.log").read_text()
        self.facts: Json = json.loads(line)

    def kill(self) -> None:
        """`kill -9`."""
        self.process.kill()
        self.process.wait(SECONDS)


class World:
    """All computers, started and joined."""

    def __init__(self, folder: Path, agents: Mapping[str, str]) -> None:
        self.computers = {
            place: Computer(place, folder, agents.get(place, ""))
            for place in ("relay", "hub", "other", "a", "b", "c", "phone", "authority")
        }
        for place in ("phone", "hub", "other", "a", "c"):
            name_host(place, DOMAIN, address("relay", place))
        name_host("hub", AUTHORITY, address("authority", "hub"))
        name_host("authority", AUTHORITY, "127.0.0.1")
        self.codes: dict[str, str] = {}
        """With which machines joined."""
        self.typed: list[str] = []
        """Commands that the user has typed up to a phone that is paired."""
        self._authority(folder)
        self.relay = Service(
            self.computers["relay"], "relay", "--domain", DOMAIN, "--verbose", "--json",
            "--home", str(folder / "relay" / "store"),
        )  # fmt: skip
        self.typed.append(f"quarterdeck relay --domain {DOMAIN}")
        self.line: str = self.relay.facts["enrolment"]
        self._start_hubs(folder)
        self.join_seconds: dict[str, float] = {}

    def _authority(self, folder: Path) -> None:
        here = self.computers["authority"]
        pem = here.folder / "pebble.pem"
        pem.write_bytes(self_signed(AUTHORITY))
        settings = {
            "listenAddress": f"0.0.0.0:{ACME_PORT}",
            "managementListenAddress": f"0.0.0.0:{ROOTS_PORT}",
            "certificate": str(pem),
            "privateKey": str(pem),
            "httpPort": 1,
            "tlsPort": 443,
        }
        config = here.folder / "pebble.json"
        config.write_text(json.dumps({"pebble": settings}))
        names: tuple[str, ...] = (
            "pebble-challtestsrv",
            "-defaultIPv6",
            "",
            "-http01",
            "",
            "-https01",
            "",
        )
        names += ("-tlsalpn01", "", "-dns01", "127.0.0.1:8053")
        names += ("-management", "127.0.0.1:8055", "-defaultIPv4", address("relay", "authority"))
        quick = {**here.environ, "PEBBLE_VA_NOSLEEP": "1"}
        acme = ("pebble", "-config", str(config), "-dnsserver", "127.0.0.1:8053")
        with (here.folder / "log").open("w") as log:
            for command in (names, acme):
                start_in("authority", *command, env=quick, stdout=log, stderr=log)
        self.root = folder / "root.pem"
        self.root.write_bytes(until(lambda: self._fetch_root(pem)))

    def _fetch_root(self, pem: Path) -> bytes | None:
        trusted = ssl.create_default_context(cafile=str(pem))
        url = f"https://{AUTHORITY}:{ROOTS_PORT}/roots/0"

        def get() -> bytes:
            raw = socket.create_connection(("127.0.0.1", ROOTS_PORT), 5)
            connection = http.client.HTTPConnection(AUTHORITY)
            connection.sock = trusted.wrap_socket(raw, server_hostname=AUTHORITY)
            connection.request("GET", urllib.request.Request(url).selector)
            found = connection.getresponse().read()
            connection.close()
            return found

        try:
            return inside("authority", get)
        except OSError:
            return None

    def _start_hubs(self, folder: Path) -> None:
        hub = self.computers["hub"]
        direct = folder / "direct"
        direct.mkdir()
        self.direct = certify_by_authority(direct, address=address("hub", "b"))
        acme: tuple[str, ...] = ("--acme-directory", f"https://{AUTHORITY}:{ACME_PORT}/dir")
        acme += ("--acme-ca", str(self.computers["authority"].folder / "pebble.pem"))
        # For the machine that dials the hub directly; a phone needs none of it.
        own: tuple[str, ...] = ("--host", address("hub", "b"), "--port", str(HUB_PORT))
        own += ("--tls-cert", str(direct / "cert.pem"), "--tls-key", str(direct / "key.pem"))
        # The first start obtains the certificate; from the next one on the computer knows the name.
        hub.trust(self.root)
        command = ("up", "--json", "--relay", self.line, "--agree-terms", *acme, *own)
        first = Service(hub, *command)
        until(lambda: list((hub.home / "acme").glob("certificate-*.pem")))
        first.process.terminate()
        first.process.wait(SECONDS)
        self.other = Service(self.computers["other"], "up", "--json", "--relay", self.line)
        self.name, self.other_name = self._name_of("hub"), self._name_of("other")
        for place in ("phone", "hub", "a", "c"):
            for name in (self.name, self.other_name):
                name_host(place, name, address("relay", place))
        self.hub = Service(hub, *command)
        self.typed.append("quarterdeck up --relay LINK --agree-terms")

    def _name_of(self, place: str) -> str:
        """Return the name of a hub below the relay."""
        home = self.computers[place].home
        pem = next((home / "acme").glob("certificate-*.pem"), home / OWN_FILE)
        certificate = x509.load_pem_x509_certificate(pem.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return str(names.get_values_for_type(x509.DNSName)[0])

    # ---- the hub ---------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Make a request of the hub's owner, on the hub's computer."""
        return owner_call(self.computers["hub"].home, method, path, body)

    def machines(self) -> dict[str, Json]:
        return {each["name"]: each for each in self.call("GET", "/api/machines")["machines"]}

    def state(self, machine: str) -> str:
        return str(self.machines().get(machine, {}).get("state"))

    def join(self, place: str, *, is_direct: bool = False) -> str:
        """Let a machine join as its user would; return the code."""
        machine = self.computers[place]
        machine.trust(self.direct if is_direct else self.root)
        words = self.call("POST", "/api/machines/codes", {})["command"].split()
        url, code = words[2:4]
        if is_direct:
            url = f"https://{address('hub', place)}:{HUB_PORT}"
        begun = time.monotonic()
        machine.run("join", url, code, "--name", place)
        until(lambda: self.state(place) == "connected")
        self.join_seconds[place] = time.monotonic() - begun
        return str(code)

    def begin(self, agent: str, machine: str = "") -> str:
        place = self.computers[machine or "hub"]
        body = {"agent": agent, "cwd": str(place.work)}
        body |= {"machine": machine} if machine else {}
        made = self.call("POST", "/api/sessions", body)
        return str(made["sessionId"])

    def prompt(self, session: str, key: str, text: str) -> None:
        path = f"/api/sessions/{session}/prompts"
        self.call("POST", path, {"key": key, "prompt": text})

    def prompt_states(self, session: str) -> dict[str, str]:
        found = self.call("GET", f"/api/sessions/{session}/prompts")["prompts"]
        return {each["key"]: each["state"] for each in found}

    # ---- the phone -------------------------------------------------------------------------------

    def phone_tls(self, raw: socket.socket, name: str = "") -> ssl.SSLSocket:
        """Begin TLS as the phone does; with the other hub's own certificate, for that hub."""
        if name == self.other_name:
            trusted = ssl.create_default_context(
                cafile=str(self.computers["other"].home / OWN_FILE)
            )
        else:
            trusted = ssl.create_default_context(cafile=str(self.root))
        return trusted.wrap_socket(raw, server_hostname=name or self.name)

    def ask(self, method: str, path: str, token: str, body: Any = None, **more: Any) -> Json:
        """Make a request through the relay, from the phone."""
        name = more.get("name") or self.name
        raw = connected(more.get("place", "phone"), "relay")
        connection = http.client.HTTPConnection(name)
        connection.sock = self.phone_tls(raw, name)
        with closing(connection):
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, headers if token else {})
            answer = connection.getresponse()
            said = answer.read()
            is_json = answer.headers.get_content_type() == "application/json"
            return {"status": answer.status, "json": json.loads(said) if is_json else None}

    # ---- logs ------------------------------------------------------------------------------------

    def logs(self, session: str) -> tuple[list[bytes], list[bytes]]:
        """Return the events of a session of another machine: the machine's, and the hub's copy."""
        machine_id, inner = session.split("~", 1)
        (place,) = [name for name, each in self.machines().items() if each["id"] == machine_id]
        (copy,) = self.computers["hub"].home.glob(f"**/{machine_id}/log.db")
        return events_of(self.computers[place].home / "log.db", inner), events_of(copy, inner)


def events_of(database: Path, session: str) -> list[bytes]:
    """Return the events of a log by number; fail if one is missing or doubled."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as log:
        rows = log.execute(
            "SELECT events.last_seq, count, data FROM events JOIN sessions"
            " ON sessions.id = events.session WHERE session_id = ? ORDER BY events.last_seq",
            (session,),
        ).fetchall()
    found: list[bytes] = []
    for last, count, content in rows:
        lines = content.removesuffix(b"\n").split(b"\n")
        assert len(lines) == count
        assert last == len(found) + count, "a number is missing or there twice"
        found += lines
    return found


@contextmanager
def running_world(folder: Path, agents: Mapping[str, str]) -> Iterator[World]:
    """Start everything; end it."""
    with cabled():
        yield World(folder, agents)

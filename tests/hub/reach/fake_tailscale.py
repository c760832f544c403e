"""A program named `tailscale` that prints what the real one prints, with files that tests write."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NAME = "desk.tail1234.ts.net"

PROGRAM = """#!{python} -IS
import json, pathlib, sys
folder = pathlib.Path({folder!r})
with (folder / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
found = folder / ("-".join(word for word in sys.argv[1:3] if not word.startswith("-")) or "none")
if not found.exists():
    sys.exit("unknown subcommand: " + " ".join(sys.argv[1:]))
answer = json.loads(found.read_text())
sys.stderr.write(answer["err"])
sys.stdout.write(answer["out"])
sys.exit(answer["status"])
"""


def status(**more: Any) -> dict[str, Any]:
    """Return a document as `tailscale status --json` prints it, shortened."""
    return {
        "Version": "1.86.2-t0a1b2c3d4-g5e6f7a8b9",
        "TUN": True,
        "BackendState": "Running",
        "HaveNodeKey": True,
        "AuthURL": "",
        "TailscaleIPs": ["100.101.102.103", "fd7a:115c:a1e0::8a01:1"],
        "Self": {
            "ID": "nAbCdEfGh1CNTRL",
            "PublicKey": "nodekey:0000000000000000000000000000000000000000000000000000000000000000",
            "HostName": "desk",
            "DNSName": f"{NAME}.",
            "OS": "linux",
            "UserID": 1234,
            "TailscaleIPs": ["100.101.102.103", "fd7a:115c:a1e0::8a01:1"],
            "AllowedIPs": ["100.101.102.103/32", "fd7a:115c:a1e0::8a01:1/128"],
            "Online": True,
            "CapMap": {"https": None},
        },
        "Health": [],
        "MagicDNSSuffix": "tail1234.ts.net",
        "CurrentTailnet": {
            "Name": "me@example.com",
            "MagicDNSSuffix": "tail1234.ts.net",
            "MagicDNSEnabled": True,
        },
        "CertDomains": [NAME],
        "Peer": {},
        "User": {},
        "ClientVersion": None,
        **more,
    }


def serve_status(target: str, name: str = f"{NAME}:443") -> dict[str, Any]:
    """Return a document as `tailscale serve status --json` prints it."""
    port = name.rpartition(":")[2]
    return {
        "TCP": {port: {"HTTPS": True}},
        "Web": {name: {"Handlers": {"/": {"Proxy": target}}}},
    }


class FakeTailscale:
    """The program in a folder that is put on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        program = folder / "tailscale"
        program.write_text(PROGRAM.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        self.answer("serve-status", {})

    def answer(self, name: str, document: Any, *, err: str = "", status: int = 0) -> None:
        """Say what a subcommand prints."""
        text = document if isinstance(document, str) else json.dumps(document)
        content = json.dumps({"out": text, "err": err, "status": status})
        (self.folder / name).write_text(content)

    def answer_certificate(self, pem: str, name: str = NAME) -> None:
        self.answer(f"cert-{name}", pem)
        self.answer("cert", pem)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

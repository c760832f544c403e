"""`hub.reach.service`: real hubs that phones on another computer reach, by TLS."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from quarterdeck.hub.auth.pairing import read_pairing_link
from quarterdeck.hub.reach.ways import AGAIN
from tests.hub.reach.fake_tailscale import NAME, FakeTailscale, serve_status, status
from tests.hub.reach.networks import HUB, Networks, open_networks
from tests.hub.reach.phone_hub import Json, PhoneHub, phone_hub

pytestmark = pytest.mark.slow
PORT = 7272  # in a network of its own


@pytest.fixture(scope="module")
def networks() -> Iterator[Networks]:
    with open_networks() as made:
        yield made


@pytest.fixture
def program(tmp_path: Path) -> FakeTailscale:
    return FakeTailscale(tmp_path / "bin")


def with_program(program: FakeTailscale, authorities: Path | None = None) -> dict[str, str]:
    """Return an environment with a Tailscale, and with what this computer trusts."""
    environ = {"PATH": f"{program.folder}:{os.environ['PATH']}"}
    return environ if authorities is None else {**environ, "SSL_CERT_FILE": str(authorities)}


def issued(folder: Path, name: str, file: str = "authorities.pem") -> tuple[str, Path]:
    """Return a certificate with its key, and the file of the public authority that issued it."""
    key, at = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"The authority of {name}")])
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - dt.timedelta(days=1))
        .not_valid_after(at + dt.timedelta(days=90))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / file
    path.write_bytes(built.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (built.public_bytes(Encoding.PEM) + private).decode(), path


# ---- the local network ---------------------------------------------------------------------


def test_a_phone_on_the_network_pairs_by_the_pin_and_nobody_else_is_believed(
    networks: Networks, tmp_path: Path
) -> None:
    networks.run("ip link set tailscale0 down")
    try:
        with phone_hub(networks, tmp_path / "home") as hub:
            assert hub.reach["url"] == f"https://{HUB}:{PORT}"
            assert (hub.reach["isUsable"], hub.reach["trustSteps"]) == (True, 3)
            _pairs_by_pin(hub)
            _is_served_a_certificate(hub)
            _is_reported_alike(hub)
            _follows_the_address(hub, networks)
    finally:
        networks.run("ip link set tailscale0 up")


def _pairs_by_pin(hub: PhoneHub) -> None:
    link = read_pairing_link(hub.start["pairing"]["link"])
    assert link is not None
    assert (link.origin, link.pin) == (hub.reach["url"], hub.reach["pin"])
    status_, said = hub.ask_from_phone("/healthz", pin="A" * 43)
    assert status_ == 0
    assert "not issued by the hub" in said
    status_, said = hub.ask_from_phone("/healthz", authorities=None)
    assert (status_, "certificate verify failed" in said) == (0, True)
    # A client of the network is never local: without a credential it is nobody.
    assert hub.ask_from_phone("/api/sessions", pin=link.pin)[0] == 401
    for host in ("evil.example", f"{HUB}:{PORT + 1}", "172.17.0.1:7272"):
        assert hub.ask_from_phone("/healthz", pin=link.pin, headers={"Host": host})[0] == 421
    body = {"code": link.code, "name": "phone"}
    status_, paired = hub.ask_from_phone("/api/pair", pin=link.pin, method="POST", body=body)
    assert (status_, paired["device"]["scope"]) == (200, "approve")
    headers = {"Authorization": f"Bearer {paired['token']}"}
    assert hub.ask_from_phone("/api/sessions", pin=link.pin, headers=headers)[0] == 200


def _is_served_a_certificate(hub: PhoneHub) -> None:
    assert hub.reach["trustUrl"] == f"http://{HUB}:{PORT + 1}"
    fetch = (
        "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[1]).read())"
    )
    command = [*hub.networks.in_phone, sys.executable, "-c", fetch]
    der = subprocess.check_output([*command, hub.reach["trustUrl"] + "/quarterdeck.crt"])
    found = x509.load_der_x509_certificate(der).fingerprint(hashes.SHA256()).hex(":").upper()
    assert found == hub.reach["fingerprint"]
    trusted = hub.home / "trusted.pem"
    trusted.write_bytes(x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM))
    assert hub.ask_from_phone("/healthz", authorities=trusted) == (200, {"status": "ok"})


def _is_reported_alike(hub: PhoneHub) -> None:
    assert hub.call("GET", "/api/reach") == hub.reach
    command = [*hub.networks.in_hub, sys.executable, "-m", "quarterdeck", "doctor", "--json"]
    done = subprocess.run([*command, "--home", str(hub.home)], capture_output=True, check=False)
    checks = json.loads(done.stdout)["checks"]
    shown = [each["found"] for each in checks]
    assert f"{hub.reach['found']} at {hub.reach['url']}" in shown
    assert {each["found"] for each in hub.reach["ways"][:-1]} <= set(shown)


def _follows_the_address(hub: PhoneHub, networks: Networks) -> None:
    """A router gives the computer another address: new certificate, same authority, no restart."""
    moved = "192.168.77.21"
    networks.move_hub(HUB, moved)
    try:
        found = hub.call("GET", "/api/reach")
        assert found["url"] == f"https://{moved}:{PORT}", found
        assert found["pin"] == hub.reach["pin"]
        trusted = hub.home / "trusted.pem"
        asked = hub.ask_from_phone("/healthz", authorities=trusted, url=found["url"])
        assert asked == (200, {"status": "ok"})
        assert hub.call("GET", "/api/hub")["startedAt"]
    finally:
        networks.move_hub(moved, HUB)


# ---- Tailscale -----------------------------------------------------------------------------


def test_tailscale_is_explained_until_phones_can_use_it_and_then_used_without_their_help(
    networks: Networks, tmp_path: Path, program: FakeTailscale
) -> None:
    pem, authorities = issued(tmp_path, NAME)
    unknown, _ = issued(tmp_path / "bin", NAME)
    other, known = issued(tmp_path, "other.example", "others.pem")
    authorities.write_bytes(authorities.read_bytes() + known.read_bytes())
    program.answer("status", "", err="failed to connect to local tailscaled", status=1)
    with phone_hub(networks, tmp_path / "home", environ=with_program(program, authorities)) as hub:
        first = _tailscale(hub.reach)
        assert "does not respond (failed to connect to local tailscaled)" in first["found"]
        program.answer("status", status(BackendState="NeedsLogin"))
        assert "not signed in" in _explained(hub, "tailscale up")
        program.answer("status", status(CertDomains=None))
        assert "issues no HTTPS certificates" in _explained(hub, "admin/dns")
        program.answer("status", status())
        program.answer("cert", "", err="Access denied: cert access denied", status=1)
        assert "only to its operator" in _explained(hub, "sudo tailscale set --operator=$USER")
        program.answer_certificate(other)
        assert "certificate is for another name" in _explained(hub, AGAIN)
        program.answer_certificate(unknown)
        assert "an authority that phones do not know" in _explained(hub, AGAIN)
        program.answer("serve-status", serve_status(f"http://127.0.0.1:{PORT}"))
        assert "nothing responds there" in _explained(hub, AGAIN)
        program.answer("serve-status", {})
        program.answer_certificate(pem)
        _is_used(hub, _looked_again(hub), authorities)


def _tailscale(reach: Json) -> Json:
    found: Json = next(each for each in reach["ways"] if each["kind"] == "tailscale")
    return found


def _looked_again(hub: PhoneHub) -> Json:
    """Return a new report: the addresses of the computer have changed."""
    address = "172.17.0.9/16 dev docker0"
    hub.networks.run(f"ip addr add {address} 2>&- || ip addr del {address}")
    found: Json = hub.call("GET", "/api/reach")
    return found


def _explained(hub: PhoneHub, step: str) -> str:
    """Return what is said about Tailscale, while phones use the network or another VPN."""
    reach = _looked_again(hub)
    found = _tailscale(reach)
    assert found["state"] == "possible"
    assert step in found["nextStep"]
    assert NAME not in reach["url"]
    assert NAME not in hub.call("POST", "/api/pairings", {})["link"]
    said: str = found["found"]
    return said


def _is_used(hub: PhoneHub, reach: Json, authorities: Path) -> None:
    assert reach["url"] == f"https://{NAME}:{PORT}", reach
    assert (reach["trustSteps"], reach["pin"]) == (0, None)
    link = read_pairing_link(hub.call("POST", "/api/pairings", {})["link"])
    assert link is not None
    assert (link.origin, link.pin) == (reach["url"], None)
    asked = hub.ask_from_phone(
        "/healthz", url=reach["url"], authorities=authorities, address="100.101.102.103"
    )
    assert asked == (200, {"status": "ok"})

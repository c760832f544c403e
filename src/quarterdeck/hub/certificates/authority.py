"""The hub's own certificate authority, for addresses that no public authority certifies.

    authority.key              its private key; as private as the rest of the data folder
    authority.pem              its certificate, which a phone is asked to trust; 10 years
    certificates/network.pem   the certificate for the hub's addresses, with its key; 390 days

A phone that trusts the authority trusts whatever its key signs. So its certificate says, in
extensions that clients enforce, what that can be: servers only, at private addresses, and under one
name that is this computer's. With a stolen key no one can pose as a bank. Private networks are
permitted whole, because a router gives a computer another address now and then, and the phone must
not have to trust the hub again for that.

The certificate for the addresses is issued again when they change, or a month before it expires.
Apple's devices refuse those of more than 398 days.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quarterdeck.errors import StartRefused
from quarterdeck.http.certificate_pins import certificate_pin
from quarterdeck.http.public_addresses import PRIVATE_NETWORKS
from quarterdeck.machine.private_files import check_private, private_folder, replace_private

FOLDER: Final = "certificates"
_KEY, _NETWORK = "authority.key", "network.pem"
AUTHORITY_FILE: Final = "authority.pem"

_AUTHORITY_DAYS: Final = 3_650
LEAF_DAYS: Final = 390
_RENEW_DAYS: Final = 30
_SKEW: Final = dt.timedelta(days=1)  # the clock of a phone may be behind
_LABEL: Final = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True, kw_only=True)
class PrivateAuthority:
    """An authority with its key."""

    folder: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def pin(self) -> str:
        return certificate_pin(self.der)

    def certified(self, addresses: Iterable[str], now: float) -> Path:
        """Return the file of a certificate for these addresses, issued if there is none yet.

        Raises:
            StartRefused: if the file cannot be used.
        """
        wanted = {ipaddress.ip_address(each) for each in addresses}
        path, at = self.folder / _NETWORK, dt.datetime.fromtimestamp(now, dt.UTC)
        if not self._fits(path, wanted, at):
            replace_private(path, self._issued(sorted(wanted, key=str), at))
        return path

    def _fits(
        self,
        path: Path,
        wanted: set[ipaddress.IPv4Address | ipaddress.IPv6Address],
        at: dt.datetime,
    ) -> bool:
        if not path.exists():
            return False
        check_private(path, path.lstat())
        try:
            found = x509.load_pem_x509_certificate(path.read_bytes())
            names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            found.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, x509.ExtensionNotFound):
            return False
        left = found.not_valid_after_utc - at
        is_current = found.not_valid_before_utc <= at and left > dt.timedelta(days=_RENEW_DAYS)
        return is_current and wanted == set(names.get_values_for_type(x509.IPAddress))

    def _issued(
        self, addresses: list[ipaddress.IPv4Address | ipaddress.IPv6Address], at: dt.datetime
    ) -> bytes:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Quarterdeck hub")])
        issued = (
            _builder(subject, self.certificate.subject, key, at, LEAF_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(each) for each in addresses]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        return _pem(key) + issued.public_bytes(Encoding.PEM) + self.pem.encode()


def open_authority(home: Path, now: float) -> PrivateAuthority:
    """Return the authority of a data folder; create it at the first use.

    Raises:
        StartRefused: if its files are not private, or cannot be read.
    """
    folder = private_folder(home / FOLDER)
    key_path, path = home / _KEY, home / AUTHORITY_FILE
    if not (key_path.exists() and path.exists()):
        key = ec.generate_private_key(ec.SECP256R1())
        at = dt.datetime.fromtimestamp(now, dt.UTC)
        made = _authority_certificate(key, socket.gethostname(), at)
        replace_private(key_path, _pem(key))
        replace_private(path, made.public_bytes(Encoding.PEM))
    for each in (key_path, path):
        check_private(each, each.lstat())
    try:
        read = load_pem_private_key(key_path.read_bytes(), password=None)
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise _unusable(home, str(error)) from error
    if not isinstance(read, ec.EllipticCurvePrivateKey):
        raise _unusable(home, "its key is of another kind")
    if read.public_key() != certificate.public_key():
        raise _unusable(home, "key and certificate do not belong together")
    if certificate.not_valid_after_utc.timestamp() < now:
        raise _unusable(home, "it has expired")
    return PrivateAuthority(folder=folder, certificate=certificate, key=read)


def _unusable(home: Path, reason: str) -> StartRefused:
    files = f"{home / _KEY} {home / AUTHORITY_FILE}"
    return StartRefused(
        f"the hub's own certificate authority in {home} cannot be used ({reason})",
        f"remove it, then trust the new one on each phone: rm {files}",
    )


def _authority_certificate(
    key: ec.EllipticCurvePrivateKey, host: str, at: dt.datetime
) -> x509.Certificate:
    label = _LABEL.sub("-", host.partition(".")[0].lower()).strip("-")[:40] or "hub"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Quarterdeck hub on {label}")])
    # Without a permitted DNS name, every DNS name would be permitted (RFC 5280, 4.2.1.10).
    permitted = [*map(x509.IPAddress, PRIVATE_NETWORKS), x509.DNSName(f"{label}.local")]
    return (
        _builder(name, name, key, at, _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.NameConstraints(permitted_subtrees=permitted, excluded_subtrees=None),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    at: dt.datetime,
    days: int,
) -> x509.CertificateBuilder:
    at = at.replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - _SKEW)
        .not_valid_after(at + dt.timedelta(days=days))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

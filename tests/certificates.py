"""Certificates for servers of tests."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certify(certificate: Path, key: Path, name: str) -> None:
    """Write a key and a self-signed certificate."""
    secret = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(own, own, secret.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=3))
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = serialization.Encoding.PEM
    certificate.write_bytes(made.sign(secret, hashes.SHA256()).public_bytes(pem))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    key.write_bytes(secret.private_bytes(pem, form, plain))


def certify_by_authority(
    folder: Path, *, age: timedelta = timedelta(days=1), address: str = "127.0.0.1"
) -> Path:
    """Write cert.pem and key.pem for an address, valid for a day after `age`; return the authority.

    cert.pem has no certificate of the authority, as those that public ones issue.
    """
    root_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority of {folder.name}")])
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub")])
    start = datetime.now(UTC) - age
    end = start + timedelta(days=2)
    number = x509.random_serial_number()
    made = x509.CertificateBuilder(root, root, root_key.public_key(), number, start, end)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    authority = made.sign(root_key, hashes.SHA256())
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
    issued = x509.CertificateBuilder(root, own, key.public_key(), number + 1, start, end)
    certificate = issued.add_extension(names, critical=False).sign(root_key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    (folder / "authority.pem").write_bytes(authority.public_bytes(pem))
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form, plain))
    return folder / "authority.pem"

"""Which relay a hub uses: `relay.json` in its data directory, written by `quarterdeck up --relay`.

The address has a token, so it is kept where the hub's other secrets are, and no later start has to
name it: `up` and the service use the relay until `up --no-relay` forgets it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from quarterdeck.errors import StartRefused
from quarterdeck.machine.private_files import check_private, refuse_link, replace_private
from quarterdeck.relay.addresses import RelayAddress, relay_address

FILE: Final = "relay.json"
LETS_ENCRYPT: Final = "https://acme-v02.api.letsencrypt.org/directory"


@dataclass(frozen=True, kw_only=True)
class AcmeSettings:
    """The authority that issues the certificate for the hub's name at the relay."""

    directory: str = LETS_ENCRYPT
    trusted: Path | None = None
    """Certificates that its own server is verified by; None: those of the system."""
    is_agreed: bool = False
    """Whether the owner has accepted its terms."""


@dataclass(frozen=True, kw_only=True)
class RelaySettings:
    """Everything that a hub must know to be reached through a relay."""

    address: RelayAddress
    acme: AcmeSettings = AcmeSettings()
    certificate: Path | None = None
    """With `private_key`: a certificate of the owner, in place of one by ACME."""
    private_key: Path | None = None


class _Stored(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    relay: str
    acme_directory: str = LETS_ENCRYPT
    acme_trusted: str | None = None
    is_agreed: bool = False
    certificate: str | None = None
    private_key: str | None = None


def load_relay(home: Path) -> RelaySettings | None:
    """Return the relay that a hub was enrolled at; None if there is none.

    Raises:
        StartRefused: if the file cannot be used.
    """
    path = home / FILE
    refuse_link(path)
    try:
        with path.open("rb") as file:
            check_private(path, os.fstat(file.fileno()))
            stored = msgspec.json.decode(file.read(), type=_Stored)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        remedy = f"remove it, then enrol again: rm {path}"
        raise StartRefused(f"{path} cannot be read", remedy) from error
    return RelaySettings(
        address=relay_address(stored.relay),
        acme=AcmeSettings(
            directory=stored.acme_directory,
            trusted=_path(stored.acme_trusted),
            is_agreed=stored.is_agreed,
        ),
        certificate=_path(stored.certificate),
        private_key=_path(stored.private_key),
    )


def save_relay(home: Path, settings: RelaySettings) -> None:
    """Remember the relay."""
    stored = _Stored(
        relay=settings.address.enrolment,
        acme_directory=settings.acme.directory,
        acme_trusted=_text(settings.acme.trusted),
        is_agreed=settings.acme.is_agreed,
        certificate=_text(settings.certificate),
        private_key=_text(settings.private_key),
    )
    replace_private(home / FILE, msgspec.json.encode(stored))


def forget_relay(home: Path) -> None:
    """Use no relay from now on; the hub's key stays, and with it its name."""
    (home / FILE).unlink(missing_ok=True)


def enrolled(before: RelaySettings | None, given: str) -> RelaySettings:
    """Return the settings for an address that was given on the command line.

    Without its secret it must be the one that is stored.

    Raises:
        StartRefused: if it is not the address of a relay, or the secret is missing.
    """
    address = relay_address(given)
    if before is not None and before.address.url == address.url:
        return before if not address.fingerprint else replace(before, address=address)
    if not address.fingerprint:
        raise StartRefused(
            f"this hub was never enrolled at {address.url}",
            "copy the whole line that `quarterdeck relay` prints on the relay",
        )
    return RelaySettings(address=address)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())

"""`AcmeCertificate`: a certificate that is obtained, served and renewed while the hub runs.

    certificate          what happens
    none, or expired     an attempt as soon as the relay is connected
    a third of its life  renewed; phones that are connected notice nothing
    an attempt failed    the next one after a minute, then after longer and longer, up to 6 hours:
                         authorities count failures, and refuse those who try too often

Its files are in `acme/` of the data directory: the key of the account, and the certificate with its
key. Nothing of them is sent anywhere but to the authority, and the keys not even there.
"""

from __future__ import annotations

import hashlib
import logging
import random
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
from anyio import to_thread
from cryptography import x509

from quarterdeck.errors import StartRefused
from quarterdeck.hub.certificates.acme import AcmeClient, AcmeFailed
from quarterdeck.hub.certificates.acme_messages import account_key, challenge_certificate
from quarterdeck.machine.private_files import check_private, private_folder, replace_private
from quarterdeck.relay import AcmeSettings, CertificateState

logger = logging.getLogger(__name__)

FOLDER: Final = "acme"
_ACCOUNT: Final = "account.key"
_ACCOUNT_URL: Final = "account.url"
_CHALLENGE: Final = "challenge.pem"
_PROTOCOL: Final = "acme-tls/1"
PAUSES: Final = (60.0, 300.0, 900.0, 3_600.0, 21_600.0)
"""After failures; the last one again and again."""
CHECK_SECONDS: Final = 600.0
_REACHABLE_SECONDS: Final = 0.2
_RENEWED_PART: Final = 3


class AcmeCertificate:
    """The certificate of one name."""

    def __init__(
        self,
        home: Path,
        host: str,
        settings: AcmeSettings,
        make_context: Callable[[Path], ssl.SSLContext],
        *,
        is_reachable: Callable[[], bool],
    ) -> None:
        """Use the certificate that was obtained before, if there is one.

        Raises:
            StartRefused: if a file cannot be used.
        """
        folder = private_folder(home / FOLDER)
        self.context: ssl.SSLContext | None = None
        self.challenge: ssl.SSLContext | None = None
        self._host = host
        self._make_context = make_context
        self._is_reachable = is_reachable
        self._folder = folder
        of = hashlib.sha256(f"{settings.directory}\n{host}".encode()).hexdigest()[:16]
        self._path = folder / f"certificate-{of}.pem"
        # Whether phones trust a private authority is found out by trying (`hub.reach`).
        self.state = CertificateState(is_test="staging" in settings.directory)
        trust = None
        if settings.trusted is not None:
            trust = _trust(settings.trusted)
        self._client = AcmeClient(settings.directory, account_key(folder / _ACCOUNT), trust)
        self._renews_at = 0.0
        if (folder / _ACCOUNT_URL).exists():
            self._client.account = (folder / _ACCOUNT_URL).read_text(encoding="utf-8")
        if self._path.exists():
            check_private(self._path, self._path.stat())
            self._use()

    async def run(self) -> None:
        """Obtain and renew the certificate, until cancelled."""
        failures = 0
        while True:
            while time.time() < self._renews_at:  # noqa: ASYNC110 - the clock may be set
                await anyio.sleep(min(CHECK_SECONDS, self._renews_at - time.time() + 1.0))
            while not self._is_reachable():  # noqa: ASYNC110 - the tunnel is another object's
                await anyio.sleep(_REACHABLE_SECONDS)
            try:
                pem = await self._client.certificate(self._host, self)
                await to_thread.run_sync(replace_private, self._path, pem)
                account = (self._client.account or "").encode()
                await to_thread.run_sync(replace_private, self._folder / _ACCOUNT_URL, account)
                self._use()
            except (AcmeFailed, OSError) as error:
                asked = self._failed(error)
                logger.warning("no certificate was issued", extra={"reason": str(error)})
                pause = max(PAUSES[min(failures, len(PAUSES) - 1)], asked or 0.0)
                failures += 1
                await anyio.sleep(pause * random.uniform(1.0, 1.2))  # noqa: S311 - no secret
            else:
                failures = 0
                logger.info("a certificate was issued", extra={"host": self._host})

    def _failed(self, error: AcmeFailed | OSError) -> float | None:
        """Show why there is no certificate; return the pause that the authority asked for."""
        asked, remedy = None, None
        if isinstance(error, AcmeFailed):
            asked, remedy = error.retry_seconds, error.remedy
        self.state = replace(
            self.state, problem=str(error), remedy=remedy, account=self._client.account
        )
        return asked

    @contextmanager
    def answering(self, key_authorization: str) -> Iterator[None]:
        """Answer the authority while the body runs."""
        path = self._folder / _CHALLENGE
        try:
            replace_private(path, challenge_certificate(self._host, key_authorization))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols([_PROTOCOL])
            context.load_cert_chain(path)
            self.challenge = context
            yield
        finally:
            self.challenge = None
            path.unlink(missing_ok=True)

    def _use(self) -> None:
        """Serve the certificate in the file, unless it has expired or cannot be read."""
        try:
            found = x509.load_pem_x509_certificate(self._path.read_bytes())
            context = self._make_context(self._path)
        except (OSError, ValueError) as error:
            self.state = replace(self.state, problem=f"{self._path} cannot be read ({error})")
            return
        begins, ends = (
            found.not_valid_before_utc.timestamp(),
            found.not_valid_after_utc.timestamp(),
        )
        if ends <= time.time():
            return
        self.context = context
        self._renews_at = ends - (ends - begins) / _RENEWED_PART
        self.state = replace(
            self.state,
            kind="acme",
            expires_at=ends,
            problem=None,
            remedy=None,
            account=self._client.account,
        )


def _trust(path: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(path))
    except (OSError, ValueError) as error:
        raise StartRefused(
            f"cannot read the certificates in {path} ({error})", "check --acme-ca"
        ) from error

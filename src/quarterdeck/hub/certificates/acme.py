"""`AcmeClient`: obtains a certificate for one name from an authority (RFC 8555), by TLS-ALPN-01.

    directory → account → order → authorization → challenge → finalize → certificate

Every step is a signed request with a nonce of the server. A stale nonce is replaced and the request
sent again, as the RFC demands; every other error ends the attempt, and says why.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import anyio

from quarterdeck._version import __version__
from quarterdeck.errors import JsonInvalid
from quarterdeck.hub.certificates.acme_messages import (
    AccountKey,
    certificate_request,
    key_pem,
    new_key,
)
from quarterdeck.jsontext import decode_json
from quarterdeck.views.text import one_line

if TYPE_CHECKING:
    import httpx

REQUEST_SECONDS: Final = 30.0
ORDER_SECONDS: Final = 180.0
"""For an authority to check the name and to issue the certificate."""
ANSWER_BYTES: Final = 1 << 20
CHALLENGE: Final = "tls-alpn-01"
_NONCE_RETRIES: Final = 8
_POLL_SECONDS: Final = 1.0
_LONGEST_POLL: Final = 15.0
_LONGEST_DETAIL: Final = 300
_ERROR: Final = "urn:ietf:params:acme:error:"
_CLOCK_OR_NAME: Final = frozenset({9, 10, 62})
"""Of OpenSSL: not valid yet, expired, for another name."""
_OTHER_CLOCK_OR_NAME: Final = "check --acme-directory, and the clock of this computer"
_OTHER_AUTHORITY: Final = (
    "if this authority is a private one, name the file with the certificate that its server has,"
    " or that issued it: quarterdeck up --acme-ca FILE"
)


class AcmeFailed(Exception):
    """An authority did not issue a certificate; `str()` is a sentence for the owner."""

    def __init__(
        self, reason: str, *, retry_seconds: float | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(reason)
        self.remedy = remedy
        """What the owner should do; None: the name could not be checked."""
        self.retry_seconds = retry_seconds
        """What the authority asked for; None: it said nothing about that."""


class ChallengeServer(Protocol):
    """Answers the authority that checks a name."""

    def answering(self, key_authorization: str) -> AbstractContextManager[None]:
        """Answer with this proof while the body runs."""


class AcmeClient:
    """An account at one authority."""

    def __init__(self, directory: str, key: AccountKey, trust: ssl.SSLContext | None) -> None:
        """`trust` verifies the server of the authority; None: the system's authorities do."""
        self.account: str | None = None
        """The address of the account, which a CAA record can name."""
        self._directory_url = directory
        self._name = urlsplit(directory).hostname or directory
        self._key = key
        self._trust = trust
        self._directory: Mapping[str, Any] = {}
        self._nonce = ""

    async def certificate(self, host: str, challenges: ChallengeServer) -> bytes:
        """Return a new key and its certificate chain, PEM.

        Raises:
            AcmeFailed: if there is none, and why.
        """
        import httpx  # noqa: PLC0415 - slow to import, and seldom needed

        options: dict[str, Any] = {} if self._trust is None else {"verify": self._trust}
        headers = {"user-agent": f"quarterdeck/{__version__}"}
        try:
            async with httpx.AsyncClient(
                timeout=REQUEST_SECONDS, trust_env=False, headers=headers, **options
            ) as http:
                with anyio.fail_after(ORDER_SECONDS):
                    return await self._obtain(_Requests(http, self._name), host, challenges)
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            raise _unreachable(self._name, error) from error
        except TimeoutError as error:
            raise AcmeFailed(f"{self._name} took too long to issue a certificate") from error

    async def _obtain(self, requests: _Requests, host: str, challenges: ChallengeServer) -> bytes:
        self._directory = await requests.read("GET", self._directory_url)
        await self._open_account(requests)
        identifiers = [{"type": "dns", "value": host}]
        order, location = await self._post(
            requests, self._endpoint("newOrder"), {"identifiers": identifiers}
        )
        for each in order.get("authorizations", ()):
            await self._authorize(requests, str(each), challenges)
        private = new_key()
        csr = certificate_request(host, private)
        await self._post(requests, str(order.get("finalize")), {"csr": csr})
        order = await self._until_done(requests, location, ("valid",))
        chain = await self._read(requests, str(order.get("certificate")))
        if not chain.startswith(b"-----BEGIN CERTIFICATE-----"):
            raise AcmeFailed(f"{self._name} sent something that is not a certificate")
        return key_pem(private) + chain

    async def _open_account(self, requests: _Requests) -> None:
        """Create the account, or find it: the same key is the same account."""
        meta = self._directory.get("meta")
        if isinstance(meta, dict) and meta.get("externalAccountRequired"):
            raise AcmeFailed(
                f"{self._name} needs an account that was made elsewhere, which is not supported;"
                " use another authority, or a certificate in files: --relay-cert, --relay-key"
            )
        self.account = None
        wanted = {"termsOfServiceAgreed": True}
        _, self.account = await self._post(requests, self._endpoint("newAccount"), wanted)

    async def _authorize(self, requests: _Requests, url: str, challenges: ChallengeServer) -> None:
        """Prove that this hub has the name."""
        authorization, _ = await self._post(requests, url, None)
        if authorization.get("status") == "valid":
            return
        offered = authorization.get("challenges", ())
        found = next((each for each in offered if each.get("type") == CHALLENGE), None)
        if found is None:
            raise AcmeFailed(
                f"{self._name} does not check names by {CHALLENGE}; use another authority"
            )
        with challenges.answering(self._key.key_authorization(str(found.get("token")))):
            await self._post(requests, str(found.get("url")), {})
            await self._until_done(requests, url, ("valid",))

    async def _until_done(
        self, requests: _Requests, url: str, wanted: tuple[str, ...]
    ) -> Mapping[str, Any]:
        """Read a resource until it has the wanted status."""
        pause = _POLL_SECONDS / 4
        while True:
            found, _ = await self._post(requests, url, None)
            status = found.get("status")
            if status in wanted:
                return found
            if status not in ("pending", "processing", "ready"):
                raise AcmeFailed(f"{self._name} could not check the name: {_problem(found)}")
            await anyio.sleep(max(pause, requests.retry_seconds or 0.0))
            pause = min(2 * pause, _LONGEST_POLL)

    def _endpoint(self, name: str) -> str:
        url = self._directory.get(name)
        if not isinstance(url, str):
            raise AcmeFailed(f"{self._directory_url} is not the directory of an ACME authority")
        return url

    async def _post(
        self, requests: _Requests, url: str, payload: object
    ) -> tuple[Mapping[str, Any], str]:
        """Send a signed request; return the answer and its `Location`."""
        content = await self._signed(requests, url, payload)
        return requests.decoded(content), requests.location

    async def _read(self, requests: _Requests, url: str) -> bytes:
        return await self._signed(requests, url, None)

    async def _signed(self, requests: _Requests, url: str, payload: object) -> bytes:
        for _ in range(_NONCE_RETRIES):
            nonce = requests.nonce
            if not nonce:
                await requests.send("HEAD", self._endpoint("newNonce"))
                nonce = requests.nonce
            requests.nonce = ""  # each is valid once
            body = self._key.signed(payload, url=url, nonce=nonce, account=self.account)
            status, content = await requests.send("POST", url, body)
            if status < 400:
                return content
            problem = requests.decoded(content)
            if problem.get("type") != f"{_ERROR}badNonce":
                raise AcmeFailed(
                    f"{self._name} refused: {_problem(problem)}",
                    retry_seconds=requests.retry_seconds,
                )
        raise AcmeFailed(f"{self._name} accepts none of its own nonces")


class _Requests:
    """Requests to one authority, and what their answers said beside their content."""

    def __init__(self, http: httpx.AsyncClient, name: str) -> None:
        self._http = http
        self._name = name
        self.nonce = ""
        self.location = ""
        self.retry_seconds: float | None = None

    async def read(self, method: str, url: str) -> Mapping[str, Any]:
        """Make a request that is not signed."""
        status, content = await self.send(method, url)
        if status >= 400:
            raise AcmeFailed(f"{self._name} answered {status}")
        return self.decoded(content)

    async def send(self, method: str, url: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return the status and the content of an answer."""
        headers = {} if body is None else {"content-type": "application/jose+json"}
        content = bytearray()
        async with self._http.stream(method, url, content=body, headers=headers) as answer:
            async for part in answer.aiter_bytes():
                content += part
                if len(content) > ANSWER_BYTES:
                    raise AcmeFailed(f"{self._name} sent too long an answer")
        self.nonce = answer.headers.get("replay-nonce", "")
        self.location = answer.headers.get("location", "")
        self.retry_seconds = _seconds(answer.headers.get("retry-after", ""))
        return answer.status_code, bytes(content)

    def decoded(self, content: bytes) -> Mapping[str, Any]:
        try:
            found = decode_json(content)
        except JsonInvalid as error:
            raise AcmeFailed(f"{self._name} sent an answer that is not JSON") from error
        if not isinstance(found, dict):
            raise AcmeFailed(f"{self._name} sent an answer that is not an object")
        return found


def _unreachable(name: str, error: Exception) -> AcmeFailed:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return AcmeFailed(
                f"this computer does not trust {name}: its certificate is not accepted"
                f" ({one_line(cause.verify_message)})",
                remedy=_OTHER_CLOCK_OR_NAME
                if cause.verify_code in _CLOCK_OR_NAME
                else _OTHER_AUTHORITY,
            )
        cause = cause.__cause__ or cause.__context__
    reason = one_line(str(error)) or type(error).__name__
    remedy = f"check that this computer reaches {name}; the hub tries again by itself"
    return AcmeFailed(f"cannot reach {name} ({reason})", remedy=remedy)


def _seconds(text: str) -> float | None:
    return min(float(text), 86_400.0) if text.isdecimal() else None


def _problem(found: Mapping[str, Any]) -> str:
    """Return what an authority says about a failure; its words are not ours to trust."""
    errors = [found.get("error"), *(each.get("error") for each in found.get("challenges", ()))]
    for each in (*errors, found):
        if isinstance(each, dict) and each.get("detail"):
            return one_line(str(each["detail"]))[:_LONGEST_DETAIL]
    return "it gave no reason"

"""After a full run with failures, secrets are nowhere but where they belong."""

import logging
from pathlib import Path

import pytest

from tests.hub.auth.support import open_guarded
from tests.hub.served import PARSERS, UPGRADE, Parser


@pytest.mark.parametrize("parser", PARSERS)
async def test_no_secret_is_in_a_log_or_in_the_database(
    tmp_path: Path, parser: Parser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_guarded(tmp_path, parser) as guarded:
        _, codes = await guarded.auth.pairings.create(scope="approve")
        device_id, token = await guarded.device("approve")
        browser = await guarded.browser()
        made = browser.proof(await browser.signing("GET", "/api/secret"))
        secrets = [guarded.owner, token, made, made.rpartition(".")[2], codes.long]
        secrets += [codes.short, codes.short.replace("-", "")]
        for secret in secrets:
            await guarded.served.call("POST", "/api/failure", token=secret)
            await guarded.get("/api/secret", token=secret)
            await guarded.get("/api/socket", f"Authorization: Bearer {secret}", *UPGRADE)
            offered = f"Sec-WebSocket-Protocol: quarterdeck.token.{secret}"
            await guarded.get("/api/socket", offered, *UPGRADE)
            await guarded.get(f"/api/secret?token={secret}")
            await browser.call("GET", "/api/nothing")
            await guarded.get("/api/secret", f"Authorization: QuarterdeckKey {secret}")
            offered = f"Sec-WebSocket-Protocol: quarterdeck.proof.{secret}"
            await guarded.get("/api/socket", offered, *UPGRADE)
            await guarded.served.call("POST", "/api/pair", json={"code": secret[:43]})
            await browser.call("POST", "/api/failure", json={"secret": secret})
        await guarded.auth.devices.revoke(device_id)
        logged = "\n".join(_everything(each) for each in caplog.records)
        stored = _stored(tmp_path)
    assert "request failed" in logged
    assert b"devices" in stored
    for secret in secrets:
        assert secret not in logged
        assert secret.encode() not in stored
    assert not any(secret.encode() in _stored(tmp_path) for secret in secrets)


def _stored(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.glob("hub.db*"))


def _everything(record: logging.LogRecord) -> str:
    trace = logging.Formatter().format(record)
    return f"{trace} {record.__dict__!r}"

"""`quarterdeck db`: check and migrate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quarterdeck.cli.main import main
from quarterdeck.hub.postgres import STEPS
from tests.postgres_server import Cluster


@pytest.fixture
def config(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HUB_DATABASE", postgres_url)
    file = tmp_path / "hub.toml"
    file.write_text('[database]\nurl = "${HUB_DATABASE}"', encoding="utf-8")
    return file


def run(config: Path, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["db", *words, "--config", str(config)])
    out, err = capfd.readouterr()
    return status, out, err


def test_an_empty_database_is_checked_migrated_and_ready(
    config: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(config, capfd, "check")
    assert (status, "is empty" in out) == (0, True)
    status, out, _ = run(config, capfd, "migrate")
    assert (status, f"now has format {len(STEPS)}" in out) == (0, True)
    status, out, _ = run(config, capfd, "migrate")
    assert (status, "already has format" in out) == (0, True)
    status, out, _ = run(config, capfd, "check", "--json")
    facts = json.loads(out)
    assert (facts["state"], facts["version"], facts["needed"]) == ("ready", len(STEPS), len(STEPS))


def test_a_newer_database_is_left_alone(
    config: Path,
    capfd: pytest.CaptureFixture[str],
    postgres_cluster: Cluster,
    postgres_database: str,
) -> None:
    run(config, capfd, "migrate")
    newer = "UPDATE quarterdeck.version SET number = 99"
    postgres_cluster.run(newer, database=postgres_database)
    for action in ("check", "migrate"):
        status, _, err = run(config, capfd, action)
        assert (status, "newer Quarterdeck (format 99); upgrade" in err) == (1, True)


def test_without_a_database_in_the_configuration_there_is_a_hint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hub.toml"
    file.write_text("", encoding="utf-8")
    status, _, err = run(file, capfd, "check")
    assert (status, "set url in [database]" in err) == (1, True)

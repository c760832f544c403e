"""ACP's own schema files, read from its npm package and never copied into this repository."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCHEMA_FOLDER = ROOT / ".peers/node_modules/@agentclientprotocol/sdk/schema/v1"


@pytest.fixture(scope="session")
def schema_folder() -> Path:
    if not (SCHEMA_FOLDER / "schema.json").exists():
        pytest.fail(f"ACP's schema is not in {SCHEMA_FOLDER}; run python3 dev.py setup")
    return SCHEMA_FOLDER


@pytest.fixture(scope="session")
def stable(schema_folder: Path) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((schema_folder / "schema.json").read_text())
    return schema


@pytest.fixture(scope="session")
def unstable(schema_folder: Path) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((schema_folder / "schema.unstable.json").read_text())
    return schema


@pytest.fixture(scope="session")
def schema_folder_v2(schema_folder: Path) -> Path:
    return schema_folder.with_name("v2")


@pytest.fixture(scope="session", params=["schema.json", "schema.unstable.json"])
def either_schema_v2(request: pytest.FixtureRequest, schema_folder_v2: Path) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((schema_folder_v2 / request.param).read_text())
    return schema


@pytest.fixture(scope="session", params=["stable", "unstable"])
def either_schema(request: pytest.FixtureRequest) -> dict[str, Any]:
    schema: dict[str, Any] = request.getfixturevalue(request.param)
    return schema

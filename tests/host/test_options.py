"""What hosts and agents may be configured with: as the originals accepted and refused it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.errors import AcpError
from quarterdeck.host.capabilities import derive_client_capabilities
from quarterdeck.host.options import (
    ResolvedHostOptions,
    resolve_agent_definition,
    resolve_host_options,
)
from quarterdeck.machine.files import DefaultFsHandler
from quarterdeck.protocol import to_json
from tests.host.scenarios import Json, snake

VECTORS = Path(__file__).parents[1] / "vectors" / "config"


def cases(name: str) -> list[Any]:
    listed = json.loads((VECTORS / f"{name}.json").read_text())["cases"]
    return [pytest.param(case, id=_title(case)) for case in listed]


def _title(case: Json) -> str:
    if "handler" in case:
        return f"{case['handler']} {'+'.join(case['methods']) or 'nothing'}"
    return json.dumps(case["input"])


def is_refused_like(error: AcpError, expected: Json) -> bool:
    return (error.code, error.retryable) == (expected["code"], expected["retryable"])


@pytest.mark.parametrize("case", cases("agent-definition"))
def test_an_agent_definition_is_checked_and_completed(case: Json) -> None:
    if "error" in case:
        with pytest.raises(AcpError) as caught:
            resolve_agent_definition(case["input"], host_cwd=Path("/tmp"))
        assert is_refused_like(caught.value, case["error"])
        return
    resolved = resolve_agent_definition(case["input"], host_cwd=Path("/tmp"))
    facts = {name: getattr(resolved, name) for name in resolved.__struct_fields__}
    given = {name: value for name, value in facts.items() if value is not None}
    assert given | {"args": list(resolved.args)} == case["ok"]
    # What was checked is what counts: it cannot be changed, and a resolved one resolves to itself.
    with pytest.raises(AttributeError):
        resolved.id = "other"  # type: ignore[misc]
    assert resolve_agent_definition(resolved, host_cwd=Path("/other")) == resolved


@pytest.mark.parametrize("field", ["env", "meta"])
def test_what_is_inside_an_agent_definition_cannot_be_changed_either(field: str) -> None:
    given = {"A": "b"}
    resolved = resolve_agent_definition({"id": "x", "command": "y", field: given})
    with pytest.raises(TypeError):
        getattr(resolved, field)["A"] = "c"
    given["A"] = "d"
    assert to_json(resolved)[field] == {"A": "b"}


@pytest.mark.parametrize("case", cases("host-options"))
def test_host_options_are_checked_and_completed(case: Json) -> None:
    if "error" in case:
        with pytest.raises(AcpError) as caught:
            resolve_host_options(case["input"])
        assert is_refused_like(caught.value, case["error"])
        return
    assert _facts(resolve_host_options(case["input"])) == case["ok"]


def _facts(options: ResolvedHostOptions) -> Json:
    backoff = options.restart_backoff
    return {
        "restart": options.restart,
        "restartLimit": options.restart_limit,
        "restartBackoff": {
            "initialMs": backoff.initial_ms,
            "factor": backoff.factor,
            "maxMs": backoff.max_ms,
        },
        "killTimeoutMs": options.kill_timeout_ms,
        "hasStorage": options.storage is not None,
        # The originals put the default handler in later; it is not one that was injected.
        "hasFs": not isinstance(options.fs, DefaultFsHandler),
        "hasTerminal": options.terminal is not None,
    }


@pytest.mark.parametrize("case", cases("handlers"))
def test_the_methods_of_a_handler_are_declared_to_agents(case: Json) -> None:
    handler = handler_with(case["methods"])
    if "error" in case["resolve"]:
        with pytest.raises(AcpError) as caught:
            resolve_host_options({case["handler"]: handler})
        assert is_refused_like(caught.value, case["resolve"]["error"])
    else:
        options = resolve_host_options({case["handler"]: handler})
        assert getattr(options, case["handler"]) is handler
    handlers = {"fs": None, "terminal": None, case["handler"]: handler}
    assert derive_client_capabilities(**handlers) == case["capabilities"]


def handler_with(methods: list[str]) -> Any:
    async def method(*_args: Any, **_named: Any) -> None: ...

    return type("Handler", (), {snake(name): method for name in methods})()


@pytest.mark.parametrize(
    ("shows", "declared"),
    [
        ((), {}),
        (("notices",), {"session": {"notices": {}}}),
        (("boolean-options",), {"session": {"configOptions": {"boolean": {}}}}),
        (
            ("terminal-sign-in",),
            {"auth": {"terminal": True}, "_meta": {"terminal-auth": True}},
        ),
        (("notices", "compaction"), {"session": {"notices": {}, "compaction": {}}}),
    ],
)
def test_what_a_program_shows_is_declared_to_agents(
    shows: tuple[str, ...], declared: dict[str, Any]
) -> None:
    options = resolve_host_options({"shows": shows})
    assert derive_client_capabilities(None, None, (), options.shows) == declared


def test_a_feature_that_is_not_known_is_refused() -> None:
    with pytest.raises(AcpError, match="invalid shows"):
        resolve_host_options({"shows": ["everything"]})

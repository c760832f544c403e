"""The dashboards show metrics that exist, by the names that Prometheus has for them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.hub import Hub
from quarterdeck.hub.api.operations import metrics_text
from quarterdeck.runner import TelemetrySettings
from quarterdeck.runner.telemetry.otlp import DROPPED, GAUGES, OtlpExporter
from quarterdeck.views.traces import Span, SpanEvent
from tests.hub.api.kit import PATIENCE, options
from tests.runner.telemetry.collector import Collector, collecting

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "dashboards"
NAME = re.compile(r"\b(?:quarterdeck|gen_ai)_\w+(?=[\[{)]|$)")
LABEL = re.compile(r"by \([^)]*\)|\{[^}]*\}")
SPAN: dict[str, Any] = {"trace_id": "1" * 32, "span_id": "2" * 16, "began": 0, "ended": 1000}
TOKENS: dict[str, Any] = {"gen_ai.usage.input_tokens": 1, "gen_ai.usage.output_tokens": 2}


def shown(name: str) -> set[str]:
    """Return the metrics of a dashboard."""
    dashboard = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert all("${" not in each for each in expressions)
    found = [NAME.findall(LABEL.sub("", each)) for each in expressions]
    assert all(found), expressions
    return {metric for metrics in found for metric in metrics}


def prometheus_names(metric: Any) -> set[str]:
    name = metric.name.replace(".", "_") + {"s": "_seconds"}.get(metric.unit, "")
    match metric.WhichOneof("data"):
        case "histogram":
            return {f"{name}_{part}" for part in ("bucket", "sum", "count")}
        case "sum":
            return {f"{name}_total"}
        case _:
            return {name}


async def test_the_dashboard_of_the_hub_shows_its_metrics(tmp_path: Path) -> None:
    async with Hub(options(tmp_path / "home")) as hub:
        text = await metrics_text(hub)
    there = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    assert shown("hub.json") - there == set()


def exported(collector: Collector) -> set[str]:
    metrics = [
        metric
        for request in collector.metrics
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    return {name for metric in metrics for name in prometheus_names(metric)}


def test_the_dashboard_of_agents_shows_what_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")
    decided: dict[str, Any] = {"quarterdeck.wait_seconds": 1.0}
    events = (SpanEvent(name="permission.decided", at=1, attributes=decided),)
    turn = Span(operation="invoke_agent", name="a", attributes=TOKENS, events=events, **SPAN)
    call = Span(operation="execute_tool", name="b", attributes={}, **SPAN)
    with collecting() as collector:
        exporter = OtlpExporter(TelemetrySettings(endpoint=collector.url, logs=False), {})
        exporter.record([turn, call])
        exporter.observe({name: {"x": 1} for name in (*GAUGES, DROPPED)})
        deadline = time.monotonic() + PATIENCE
        while missing := shown("agents.json") - exported(collector):
            assert time.monotonic() < deadline, missing
            time.sleep(0.02)
        exporter.close()

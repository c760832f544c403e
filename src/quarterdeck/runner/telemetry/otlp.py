"""Sends telemetry by OTLP (HTTP with protobuf), with OpenTelemetry's SDK: an optional dependency.

The SDK reads the standard variables (`OTEL_EXPORTER_OTLP_*`, `OTEL_RESOURCE_ATTRIBUTES`,
`OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_BLRP_*`); what `[telemetry]` sets is passed to it. Metrics and
logs are sent by threads of the SDK, whose queues are bounded.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode
from typing_extensions import override

from quarterdeck._version import __version__
from quarterdeck.runner.telemetry.settings import TelemetrySettings
from quarterdeck.views.traces import Span

_SCOPE: Final = InstrumentationScope("quarterdeck", __version__)
_LOGGED: Final = "quarterdeck"
"""The logger whose records are sent, from INFO up."""
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NS: Final = 1_000_000  # in a millisecond
_FLUSH_MS: Final = 1500
_SECONDS: Final = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_TOKENS: Final = tuple(4**power for power in range(14))
"""The boundaries of `gen_ai.client.token.usage` in the conventions."""
GAUGES: Final = {
    "quarterdeck.sessions": ("status", "{session}", "Sessions by status"),
    "quarterdeck.agents": ("status", "{agent}", "Agents by status"),
    "quarterdeck.pending_permissions": ("", "{request}", "Pending permission requests"),
    "quarterdeck.running_turns": ("", "{turn}", "Turns that run"),
    "quarterdeck.telemetry.waiting": ("", "{span}", "Spans that wait to be sent"),
}
"""The label, the unit and the description of each."""
DROPPED: Final = "quarterdeck.telemetry.dropped"
TOKEN_TYPES: Final = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
}


class OtlpExporter:
    """Sends spans when it is called, and metrics and logs by itself."""

    def __init__(self, settings: TelemetrySettings, environ: Mapping[str, str]) -> None:
        names = {SERVICE_VERSION: __version__}
        service = settings.service_name or environ.get("OTEL_SERVICE_NAME") or "quarterdeck"
        self._resource = Resource.create({**names, SERVICE_NAME: service})
        self._spans = OTLPSpanExporter(**_target(settings, environ, "traces"))
        self._metrics = _Metrics(settings, environ, self._resource) if settings.metrics else None
        self._logs = _Logs(settings, environ, self._resource) if settings.logs else None
        # The SDK reports each failure by itself; a receiver that is down is reported once by us.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    def export(self, spans: Sequence[Span]) -> bool:
        readable = [readable_span(span, self._resource) for span in spans]
        return self._spans.export(readable) is SpanExportResult.SUCCESS

    def record(self, spans: Sequence[Span]) -> None:
        if self._metrics is not None:
            for span in spans:
                self._metrics.record(span)

    def observe(self, numbers: Mapping[str, Mapping[str, int]]) -> None:
        if self._metrics is not None:
            self._metrics.observed = numbers

    def flush(self) -> None:
        if self._metrics is not None:
            self._metrics.provider.force_flush(_FLUSH_MS)
        if self._logs is not None:
            self._logs.provider.force_flush(_FLUSH_MS)

    def close(self) -> None:
        """End without waiting; what is left of metrics and logs is lost."""
        self._spans.shutdown()  # type: ignore[no-untyped-call]  # it has no annotations
        if self._logs is not None:
            self._logs.detach()
        # The SDK waits for a receiver that may be down.
        threading.Thread(target=self._end_threads, daemon=True).start()

    def _end_threads(self) -> None:
        if self._logs is not None:
            self._logs.provider.shutdown()
        if self._metrics is not None:
            self._metrics.provider.shutdown(timeout_millis=_FLUSH_MS)


def _target(settings: TelemetrySettings, environ: Mapping[str, str], signal: str) -> dict[str, Any]:
    """Return the arguments of an exporter; what is absent comes from the standard variables."""
    target: dict[str, Any] = {}
    if settings.endpoint:
        target["endpoint"] = f"{settings.endpoint.rstrip('/')}/v1/{signal}"
    if settings.headers:
        target["headers"] = {
            name: _VARIABLE.sub(lambda found: environ.get(found[1], ""), value)
            for name, value in settings.headers.items()
        }
    return target


def readable_span(span: Span, resource: Resource) -> ReadableSpan:
    """Return a span as the SDK has it."""
    trace_id = int(span.trace_id, 16)

    def context(span_id: str) -> SpanContext:
        return SpanContext(
            trace_id, int(span_id, 16), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
        )

    error = {} if span.error is None else {"error.type": span.error}
    return ReadableSpan(
        name=span.name,
        context=context(span.span_id),
        parent=None if span.parent_id is None else context(span.parent_id),
        resource=resource,
        attributes={**span.attributes, **error},
        events=[
            Event(each.name, dict(each.attributes), int(each.at * _NS)) for each in span.events
        ],
        kind=SpanKind.INTERNAL if span.operation == "execute_tool" else SpanKind.CLIENT,
        status=Status(StatusCode.UNSET if span.error is None else StatusCode.ERROR),
        start_time=int(span.began * _NS),
        end_time=int(span.ended * _NS),
        instrumentation_scope=_SCOPE,
    )


class _Metrics:
    """Histograms of what ended, and gauges of what is."""

    def __init__(
        self, settings: TelemetrySettings, environ: Mapping[str, str], resource: Resource
    ) -> None:
        self.observed: Mapping[str, Mapping[str, int]] = {}
        exporter = OTLPMetricExporter(**_target(settings, environ, "metrics"))
        self.provider = MeterProvider(
            [PeriodicExportingMetricReader(exporter)], resource, shutdown_on_exit=False
        )
        meter = self.provider.get_meter("quarterdeck", __version__)

        def histogram(name: str, unit: str, about: str, bounds: Sequence[float]) -> Any:
            return meter.create_histogram(
                name, unit, about, explicit_bucket_boundaries_advisory=bounds
            )

        self._durations = {
            "invoke_agent": histogram(
                "gen_ai.invoke_agent.duration", "s", "Duration of a turn", _SECONDS
            ),
            "execute_tool": histogram(
                "gen_ai.execute_tool.duration", "s", "Duration of a tool call", _SECONDS
            ),
        }
        self._tokens = histogram(
            "gen_ai.client.token.usage", "{token}", "Tokens used by a turn", _TOKENS
        )
        self._waits = histogram(
            "quarterdeck.permission.wait", "s", "How long a permission request waited", _SECONDS
        )
        for name, (label, unit, about) in GAUGES.items():
            meter.create_observable_gauge(name, [self._callback(name, label)], unit, about)
        about = "Spans that were dropped"
        callback = self._callback(DROPPED, "reason")
        meter.create_observable_counter(DROPPED, [callback], "{span}", about)

    def _callback(
        self, name: str, label: str
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            values = self.observed.get(name, {})
            return [Observation(n, {label: value} if label else {}) for value, n in values.items()]

        return observe

    def record(self, span: Span) -> None:
        duration = self._durations.get(span.operation)
        if duration is None:
            return
        kept = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.agent.name")
        names = (*kept, "gen_ai.request.model", "gen_ai.tool.name")
        labels = {name: span.attributes[name] for name in names if name in span.attributes}
        error = {} if span.error is None else {"error.type": span.error}
        duration.record((span.ended - span.began) / 1000, {**labels, **error})
        for kind, name in TOKEN_TYPES.items():
            if name in span.attributes:
                self._tokens.record(span.attributes[name], {**labels, "gen_ai.token.type": kind})
        for event in span.events:
            if "quarterdeck.wait_seconds" in event.attributes:
                how = {**event.attributes}
                self._waits.record(how.pop("quarterdeck.wait_seconds"), {**labels, **how})


class _Logs(logging.Handler):
    """Sends records of Python's logging; they have neither prompts nor secrets from INFO up."""

    def __init__(
        self, settings: TelemetrySettings, environ: Mapping[str, str], resource: Resource
    ) -> None:
        super().__init__(logging.INFO)
        self.provider = LoggerProvider(resource, shutdown_on_exit=False)
        exporter = OTLPLogExporter(**_target(settings, environ, "logs"))
        self.provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
        self._logger = self.provider.get_logger("quarterdeck", __version__)
        self._level = logging.getLogger(_LOGGED).level
        logging.getLogger(_LOGGED).addHandler(self)
        if not logging.getLogger(_LOGGED).isEnabledFor(logging.INFO):
            logging.getLogger(_LOGGED).setLevel(logging.INFO)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._logger.emit(_log_record(record))
        except Exception:  # noqa: BLE001 - logging must not fail its caller
            self.handleError(record)

    def detach(self) -> None:
        logging.getLogger(_LOGGED).removeHandler(self)
        logging.getLogger(_LOGGED).setLevel(self._level)


_SEVERITIES: Final = {
    logging.INFO: SeverityNumber.INFO,
    logging.WARNING: SeverityNumber.WARN,
    logging.ERROR: SeverityNumber.ERROR,
    logging.CRITICAL: SeverityNumber.FATAL,
}
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _log_record(record: logging.LogRecord) -> LogRecord:
    extra = {
        f"quarterdeck.{name}": value if isinstance(value, int | float | bool) else str(value)
        for name, value in vars(record).items()
        if name not in _PLAIN
    }
    return LogRecord(
        timestamp=int(record.created * 1e9),
        severity_number=_SEVERITIES.get(record.levelno, SeverityNumber.INFO),
        severity_text=record.levelname,
        body=record.getMessage(),
        attributes={"code.namespace": record.name, **extra},
    )

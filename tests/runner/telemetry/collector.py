"""A receiver of OTLP (HTTP with protobuf) that can be down, slow or refuse what it gets."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What was received."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.logs: list[ExportLogsServiceRequest] = []
        self.status = 200
        self.attempts = 0
        """Requests with traces, accepted or not."""
        self.released = threading.Event()
        """Answers wait for this."""
        self.released.set()

    @property
    def spans(self) -> list[Any]:
        """The spans of all requests, in order."""
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def metric_names(self) -> set[str]:
        return {
            metric.name
            for request in self.metrics
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    @property
    def log_texts(self) -> list[str]:
        return [
            record.body.string_value
            for request in self.logs
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    def take(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        if path == "/v1/traces":
            self.traces.append(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        elif path == "/v1/logs":
            self.logs.append(ExportLogsServiceRequest.FromString(body))
        else:
            raise AssertionError(path)


def attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of a span or an event."""

    def value(given: Any) -> Any:
        kind = given.WhichOneof("value")
        if kind == "array_value":
            return [value(each) for each in given.array_value.values]
        return getattr(given, kind)

    return {each.key: value(each.value) for each in thing.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a receiver until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # type: ignore[explicit-override]  # noqa: A002
            """Say nothing."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.attempts += self.path == "/v1/traces"
            collector.headers.append({name.lower(): text for name, text in self.headers.items()})
            collector.released.wait()
            if collector.status == 200:
                collector.take(self.path, body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector = Collector(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        collector.released.set()
        server.shutdown()
        server.server_close()
        thread.join()

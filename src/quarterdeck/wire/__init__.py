"""JSON-RPC 2.0 over byte streams: framing, messages, one connection class, transports."""

from quarterdeck.wire.calls import OnResponse
from quarterdeck.wire.connection import Connection, open_connection
from quarterdeck.wire.framing import Framing
from quarterdeck.wire.messages import (
    CANCEL_REQUEST,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    Failure,
    Notification,
    Request,
    Result,
    Vocabulary,
    canonical_id,
    method_not_found,
    parse,
    read_error,
    rpc_error,
)
from quarterdeck.wire.options import ConnectionOptions, Report, ReportKind, log_report
from quarterdeck.wire.requests import Response
from quarterdeck.wire.tasks import IndependentTasks, background_tasks, cancel_when, foreign_errors
from quarterdeck.wire.transports import (
    ByteTransport,
    FdTransport,
    MemoryTransport,
    ProcessTransport,
    memory_pair,
    open_process,
    stdio_transport,
)

__all__ = [
    "CANCEL_REQUEST",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "REQUEST_CANCELLED",
    "ByteTransport",
    "Connection",
    "ConnectionOptions",
    "Failure",
    "FdTransport",
    "Framing",
    "IndependentTasks",
    "MemoryTransport",
    "Notification",
    "OnResponse",
    "ProcessTransport",
    "Report",
    "ReportKind",
    "Request",
    "Response",
    "Result",
    "Vocabulary",
    "background_tasks",
    "cancel_when",
    "canonical_id",
    "foreign_errors",
    "log_report",
    "memory_pair",
    "method_not_found",
    "open_connection",
    "open_process",
    "parse",
    "read_error",
    "rpc_error",
    "stdio_transport",
]

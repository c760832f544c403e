"""JSON-RPC 2.0 over byte streams: framing, messages, one connection class, transports."""

from quarterdeck.wire.calls import OnAnswer
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
    Result,
    method_not_found,
    read_error,
    rpc_error,
)
from quarterdeck.wire.options import ConnectionOptions
from quarterdeck.wire.reports import Report, ReportKind, log_report
from quarterdeck.wire.tasks import background_tasks
from quarterdeck.wire.transports import (
    ByteTransport,
    FdTransport,
    MemoryTransport,
    ProcessTransport,
    memory_pair,
    open_process,
    stdio_transport,
)
from quarterdeck.wire.vocabulary import Vocabulary

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
    "MemoryTransport",
    "OnAnswer",
    "ProcessTransport",
    "Report",
    "ReportKind",
    "Result",
    "Vocabulary",
    "background_tasks",
    "log_report",
    "memory_pair",
    "method_not_found",
    "open_connection",
    "open_process",
    "read_error",
    "rpc_error",
    "stdio_transport",
]

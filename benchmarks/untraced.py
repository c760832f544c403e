"""Imported before the official Python SDK: it traces every message if OpenTelemetry is there.

It is there for another package's sake; the tracing doubles what the SDK costs unasked.
"""

import sys

sys.modules["opentelemetry.trace"] = None  # type: ignore[assignment]  # "not installed"

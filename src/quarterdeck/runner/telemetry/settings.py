"""The table `[telemetry]` of hub.toml."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class TelemetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where telemetry is sent, and what of it.

    What is left out is as the standard variables say (`OTEL_EXPORTER_OTLP_ENDPOINT`,
    `OTEL_SERVICE_NAME`, `OTEL_METRIC_EXPORT_INTERVAL` and so on), or their defaults.
    """

    enabled: bool = False
    """Nothing is sent unless this is set, whatever the variables say."""
    endpoint: str = ""
    """The URL of an OTLP receiver (HTTP with protobuf), without `/v1/traces`."""
    headers: dict[str, str] = {}
    """Sent with every request; `${NAME}` is a variable of the runner's environment."""
    service_name: str = ""
    traces: bool = True
    metrics: bool = True
    logs: bool = True
    content: bool = False
    """Whether spans have prompts, answers, and titles, arguments and results of tool calls."""


def telemetry_problem(settings: TelemetrySettings) -> str | None:
    """Return what is wrong with settings, as the end of a sentence."""
    if settings.endpoint:
        try:
            parts = urlsplit(settings.endpoint)
            is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            is_url = False
        if not is_url:
            return "endpoint is no http or https URL; use one such as http://localhost:4318"
    for name, value in settings.headers.items():
        if not _HEADER.fullmatch(name) or "\n" in value or "\r" in value:
            return f"headers has {name!r}, which is no HTTP header; fix its name or value"
    return None

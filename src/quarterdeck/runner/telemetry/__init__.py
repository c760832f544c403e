"""Telemetry by OpenTelemetry: spans of turns, metrics and logs, sent by OTLP; off by default."""

__all__: list[str] = []

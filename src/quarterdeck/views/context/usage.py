"""Tokens, cost, the context window and rate limits: `resource:*` events."""

from __future__ import annotations

import re
from typing import Any, Final

from quarterdeck.jsontext import encode_json
from quarterdeck.views.context.events import (
    ContextWindowEvent,
    CostUpdateEvent,
    RateLimitEvent,
    TokenUsageEvent,
)
from quarterdeck.views.context.numbering import EventNumbering
from quarterdeck.views.context.types import CostBreakdown, TokenUsage

_LIMITED: Final = re.compile(r"\b429\b|rate.?limit|too many requests", re.IGNORECASE)
_RETRY_AFTER: Final = re.compile(
    r"(?:retry|try again)[-_\s]*(?:after|in)[\"']?[:\s=]*(\d{1,6}(?:\.\d{1,6})?)", re.IGNORECASE
)
_LIMITS: Final = re.compile(r"\b(tokens?|requests?)\b", re.IGNORECASE)


class Resources:
    """Counts what a session has used so far, and emits every change."""

    def __init__(self, numbering: EventNumbering) -> None:
        self._numbering = numbering
        self.tokens = TokenUsage(input_tokens=0, output_tokens=0)
        self.knows_tokens = False
        self.cost: CostBreakdown | None = None
        self._window = (0, 0)

    def usage_update(self, payload: dict[str, Any]) -> None:
        used, size = _count(payload.get("used")), _count(payload.get("size"))
        if used is not None and size and (used, size) != self._window:
            self._window = (used, size)
            percentage = round(100 * used / size, 1)
            self._numbering.emit(ContextWindowEvent, used=used, limit=size, percentage=percentage)
        cost = payload.get("cost")
        if isinstance(cost, dict):
            self._cost(cost.get("amount"), cost.get("currency"))

    def _cost(self, amount: Any, currency: Any) -> None:
        is_amount = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not is_amount or not isinstance(currency, str):
            return
        before = self.cost.total if self.cost and self.cost.currency == currency else 0.0
        if self.cost is not None and amount == before:
            return
        self.cost = CostBreakdown(total=amount, currency=currency)
        delta = CostBreakdown(total=round(amount - before, 9), currency=currency)
        self._numbering.emit(CostUpdateEvent, delta=delta, cumulative=self.cost)

    def turn_usage(self, usage: Any, meta: Any) -> None:
        """Add the usage of one turn; some agents report it only in the `_meta` of the response."""
        delta = token_usage(usage) or token_usage(_quota(meta))
        if delta is None:
            return
        self.tokens = _sum(self.tokens, delta)
        self.knows_tokens = True
        self._numbering.emit(TokenUsageEvent, delta=delta, cumulative=self.tokens)

    def error(self, error: dict[str, Any]) -> None:
        """Emit a rate limit, if the error is one."""
        message = error.get("message")
        text = message if isinstance(message, str) else ""
        everything = f"{text} {encode_json(error).decode(errors='replace')}"
        if _LIMITED.search(everything) is None:
            return
        wait, limit = _RETRY_AFTER.search(everything), _LIMITS.search(text)
        self._numbering.emit(
            RateLimitEvent,
            limit=limit[1].lower().rstrip("s") + "s" if limit is not None else "unknown",
            retry_after=float(wait[1]) if wait is not None else None,
            message=text or None,
        )


_COUNTS: Final[dict[str, tuple[str, ...]]] = {
    "input_tokens": ("inputTokens", "input_tokens"),
    "output_tokens": ("outputTokens", "output_tokens"),
    "cache_read_tokens": (
        "cachedReadTokens", "cachedInputTokens", "cached_tokens", "cache_read_input_tokens",
    ),
    "cache_write_tokens": (
        "cachedWriteTokens", "cacheWriteInputTokens", "cache_creation_input_tokens",
    ),
    "thought_tokens": ("thoughtTokens", "reasoningOutputTokens", "thought_tokens"),
}  # fmt: skip


def token_usage(usage: Any) -> TokenUsage | None:
    """Read counts of tokens in the spellings of agents and of their providers."""
    if not isinstance(usage, dict):
        return None
    counts = {
        ours: next((count for key in keys if (count := _count(usage.get(key))) is not None), None)
        for ours, keys in _COUNTS.items()
    }
    given, made = counts.pop("input_tokens"), counts.pop("output_tokens")
    if given is None and made is None:
        return None
    return TokenUsage(input_tokens=given or 0, output_tokens=made or 0, **counts)


def usage_of_call(raw_output: Any, meta: Any) -> TokenUsage | None:
    """Return the tokens that a call itself reports: in its output, or in a vendor's response.

    Claude puts the result of a finished sub-agent into `_meta.claudeCode.toolResponse`.
    """
    vendors = meta.values() if isinstance(meta, dict) else ()
    responses = [each.get("toolResponse") for each in vendors if isinstance(each, dict)]
    for source in (raw_output, meta, *responses):
        found = token_usage(source.get("usage")) if isinstance(source, dict) else None
        if found is not None:
            return found
    return None


def _quota(meta: Any) -> Any:
    quota = meta.get("quota") if isinstance(meta, dict) else None
    return quota.get("token_count") if isinstance(quota, dict) else None


def _count(value: Any) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return value if is_count else None


def _sum(one: TokenUsage, other: TokenUsage) -> TokenUsage:
    def add(first: int | None, second: int | None) -> int | None:
        return None if first is None and second is None else (first or 0) + (second or 0)

    return TokenUsage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cache_read_tokens=add(one.cache_read_tokens, other.cache_read_tokens),
        cache_write_tokens=add(one.cache_write_tokens, other.cache_write_tokens),
        thought_tokens=add(one.thought_tokens, other.thought_tokens),
    )

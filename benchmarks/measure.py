"""What every contender reports: one JSON line."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path


class Stopwatch:
    """Wall-clock and CPU time of this process, all threads."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def report(self, count: int, **more: float) -> None:
        wall = time.perf_counter() - self._wall
        cpu = time.process_time() - self._cpu
        figures = {
            "count": count,
            "per_second": round(count / wall),
            "cpu_us": round(cpu / count * 1e6, 3),
            "rss_mb": round(_peak_memory_mb(), 1),
            **more,
        }
        print(json.dumps(figures), flush=True)


def _peak_memory_mb() -> float:
    """Return the peak of this program; `ru_maxrss` would include that of its parent."""
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p50_us": round(ordered[len(ordered) // 2] * 1e6, 1),
        "p99_us": round(ordered[len(ordered) * 99 // 100] * 1e6, 1),
    }

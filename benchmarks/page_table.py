"""What the page costs the browser it runs in."""

from __future__ import annotations

from harness import Table, lines_of, table


def page(_rounds: int) -> Table:
    (figures,) = lines_of("page_cost.py")
    rows = [[name, str(value), wanted] for name, value, wanted in figures["rows"]]
    title = "**The page** in Chromium, phone-sized (software rendering; slow: CPU 4 times slower)"
    return [title, "", *table(["", "measured", "wanted"], rows), ""]

"""Permission requests in a runner.

`inbox` decides them by rules, offers the rest to people and takes their answers. `card` is a
request as people see it. `decision_recorder` makes the rows of `decision_index`, the audit, from
the log.
"""

__all__: list[str] = []

"""How phones reach the hub: the ways there are, the best of them, and the next step.

`service` does what this decides; it is not imported here, because it needs a server.
"""

from quarterdeck.hub.reach.machine_facts import MachineFacts, look_at_machine
from quarterdeck.hub.reach.ways import (
    Outcome,
    Reach,
    ReachFacts,
    Target,
    Way,
    describe,
    targets,
)

__all__ = [
    "MachineFacts",
    "Outcome",
    "Reach",
    "ReachFacts",
    "Target",
    "Way",
    "describe",
    "look_at_machine",
    "targets",
]

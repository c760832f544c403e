"""`AcceptedSites`: the names that the hub answers by, some of which are found while it runs."""

from __future__ import annotations

from collections.abc import Iterable

from quarterdeck.http.origins import Listening, Site, sites, sites_of


class AcceptedSites:
    """The names that the hub answers by: those of its configuration, and those found later."""

    def __init__(self, listening: Listening) -> None:
        self._own = sites(listening)
        self._further: dict[str, tuple[str, ...]] = {}
        self.at_ports: dict[str, Site] = {}
        """By `Host`, in lower case."""
        self.at_socket: dict[str, Site] = {}
        """The same at the Unix socket, which no browser reaches: programs need not know a port."""
        self._combine()

    def set_further(self, source: str, origins: Iterable[str]) -> None:
        """Replace the origins that `source` has found, such as `https://desk.example:7272`."""
        self._further[source] = tuple(origins)
        self._combine()

    def _combine(self) -> None:
        further = (each for origins in self._further.values() for each in origins)
        found = {host: site for origin in further for host, site in sites_of(origin).items()}
        self.at_ports = {**found, **self._own}
        self.at_socket = {"localhost": next(iter(self._own.values())), **self.at_ports}

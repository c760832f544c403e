"""`AcceptedSites`: names that are found while a hub runs."""

from quarterdeck.http.origins import Listening
from quarterdeck.hub.auth.accepted_sites import AcceptedSites


def test_names_that_are_found_later_are_accepted_until_they_are_replaced() -> None:
    accepted = AcceptedSites(Listening(port=7272))
    configured = dict(accepted.at_ports)
    accepted.set_further("network", ["https://192.168.1.5:7272"])
    accepted.set_further("relay", ["https://desk.example"])
    assert accepted.at_ports["192.168.1.5:7272"].is_secure
    assert accepted.at_socket["desk.example"].origin == "https://desk.example"
    accepted.set_further("network", [])
    assert "192.168.1.5:7272" not in accepted.at_ports
    assert "desk.example" in accepted.at_ports
    accepted.set_further("relay", [])
    assert accepted.at_ports == configured


def test_a_name_that_is_found_later_does_not_change_a_configured_one() -> None:
    accepted = AcceptedSites(Listening(port=7272))
    accepted.set_further("network", ["https://127.0.0.1:7272"])
    assert accepted.at_ports["127.0.0.1:7272"].origin == "http://127.0.0.1:7272"

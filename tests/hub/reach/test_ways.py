"""`hub.reach.ways`: which way is the best, and what is said about each."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, strategies as st

from quarterdeck.http.origins import Listening
from quarterdeck.hub.reach.tailscale import TailscaleFacts
from quarterdeck.hub.reach.ways import (
    AGAIN,
    TRUST_STEPS,
    Outcome,
    Reach,
    ReachFacts,
    Way,
    address_kind,
    describe,
    is_wanted,
    targets,
)
from quarterdeck.machine.network_interfaces import InterfaceAddress
from quarterdeck.relay.state import CertificateState, RelayState

WLAN = InterfaceAddress("wlan0", "192.168.1.20")
WIRE = InterfaceAddress("eth0", "10.1.2.3")
WIREGUARD = InterfaceAddress("wg0", "10.8.0.2")
ZEROTIER = InterfaceAddress("ztabcdef12", "10.147.17.5")
NEBULA = InterfaceAddress("nebula1", "192.168.100.4")
DOCKER = InterfaceAddress("docker0", "172.17.0.1")
COMPOSE = InterfaceAddress("br-0123456789ab", "172.18.0.1")
PUBLIC = InterfaceAddress("eth0", "8.8.8.8")
LOOPBACK = InterfaceAddress("lo", "127.0.0.1")
TAILNET = InterfaceAddress("tailscale0", "100.101.102.103")
NAME = "desk.tail1234.ts.net"
TAILSCALE = TailscaleFacts(
    state="running",
    name=NAME,
    addresses=(TAILNET.address, "fd7a:115c:a1e0::1"),
    certified=(NAME,),
)
RELAY = RelayState(
    relay="relay.example",
    public_url="https://abc.relay.example",
    is_connected=True,
    certificate=CertificateState(kind="acme"),
)
HOME = ReachFacts(
    listening=Listening(port=7272),
    is_for_phones=True,
    addresses=(LOOPBACK, WLAN),
    default_address=WLAN.address,
)
EVERYTHING = replace(
    HOME,
    listening=Listening(port=7272, is_behind_proxy=True, allowed_hosts=("desk.example",)),
    addresses=(LOOPBACK, WLAN, WIREGUARD, TAILNET, DOCKER, PUBLIC),
    tailscale=TAILSCALE,
    relay=RELAY,
)
ORDER = ("public", "relay", "tailscale", "vpn", "network")


def tried(facts: ReachFacts, works: bool = True) -> Reach:
    outcome = Outcome() if works else Outcome(problem="no answer in time")
    return describe(facts, {each.origin: outcome for each in targets(facts)})


def way(reach: Reach, kind: str) -> Way:
    return next(each for each in reach.ways if each.kind == kind)


# ---- the order -----------------------------------------------------------------------------


def test_all_ways_are_tried_in_one_order() -> None:
    assert tuple(each.kind for each in targets(EVERYTHING)) == ORDER
    assert tuple(each.kind for each in tried(EVERYTHING).ways) == ORDER


@pytest.mark.parametrize("works", list(product((True, False), repeat=5)))
def test_the_first_way_that_works_is_used(works: tuple[bool, ...]) -> None:
    outcomes = {
        target.origin: Outcome() if is_good else Outcome(problem="no answer in time")
        for target, is_good in zip(targets(EVERYTHING), works, strict=True)
    }
    reach = describe(EVERYTHING, outcomes)
    best = next((kind for kind, is_good in zip(ORDER, works, strict=True) if is_good), None)
    assert reach.is_usable is any(works)
    assert reach.url == (None if best is None else way(reach, best).url)
    assert reach.trust_steps == (TRUST_STEPS if best in ("vpn", "network") else 0)


def test_a_hub_listens_at_no_more_addresses_than_it_needs() -> None:
    network = targets(HOME)[-1]
    assert is_wanted(network, HOME, has_better=False)
    assert not is_wanted(network, HOME, has_better=True)


def test_a_phone_that_trusts_the_hub_keeps_its_address_when_a_better_way_appears() -> None:
    facts = replace(HOME, has_authority=True)
    assert is_wanted(targets(facts)[-1], facts, has_better=True)


def test_a_way_that_is_not_needed_is_shown_as_such() -> None:
    facts = replace(HOME, relay=RELAY)
    reach = describe(facts, {RELAY.public_url: Outcome()})
    assert way(reach, "network").state == "unavailable"
    assert "a better option works" in way(reach, "network").found


# ---- addresses -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        (WLAN, "network"),
        (WIRE, "network"),
        (InterfaceAddress("en0", "fd00::2"), "network"),
        (InterfaceAddress("br0", "192.168.0.2"), "network"),
        (WIREGUARD, "vpn"),
        (ZEROTIER, "vpn"),
        (NEBULA, "vpn"),
        (InterfaceAddress("utun4", "10.0.0.5"), "vpn"),
        (TAILNET, "vpn"),
        (InterfaceAddress("utun3", "100.64.0.9"), "vpn"),
        (DOCKER, "bridge"),
        (COMPOSE, "bridge"),
        (InterfaceAddress("virbr0", "192.168.122.1"), "bridge"),
        (InterfaceAddress("podman0", "10.88.0.1"), "bridge"),
        (InterfaceAddress("vmnet8", "192.168.5.1"), "bridge"),
        (InterfaceAddress("bridge100", "192.168.64.1"), "bridge"),
        (PUBLIC, "public"),
        (InterfaceAddress("eth0", "2a00::1"), "public"),
        (LOOPBACK, "none"),
        (InterfaceAddress("lo", "::1"), "none"),
        (InterfaceAddress("wlan0", "fe80::1"), "none"),
        (InterfaceAddress("eth0", "169.254.3.4"), "none"),
    ],
)
def test_an_address_is_for_phones_only_if_they_can_reach_it(
    address: InterfaceAddress, kind: str
) -> None:
    assert address_kind(address) == kind


def test_the_address_of_the_default_route_is_preferred() -> None:
    facts = replace(HOME, addresses=(WIRE, WLAN), default_address=WLAN.address)
    assert targets(facts)[-1].origin == "https://192.168.1.20:7272"
    assert targets(replace(facts, default_address=WIRE.address))[-1].listens_at == (WIRE.address,)


def test_an_address_of_ip_version_6_is_written_as_browsers_want_it() -> None:
    facts = replace(HOME, addresses=(InterfaceAddress("eth0", "fd00::2"),))
    assert targets(facts)[-1].origin == "https://[fd00::2]:7272"


# ---- what no code is drawn for -------------------------------------------------------------

UNUSABLE = {
    "loopback alone": replace(HOME, addresses=(LOOPBACK,)),
    "no network": replace(HOME, addresses=()),
    "bridges of containers": replace(HOME, addresses=(LOOPBACK, DOCKER, COMPOSE)),
    "a container": replace(HOME, is_in_container=True),
    "a public address": replace(HOME, addresses=(LOOPBACK, PUBLIC)),
    "not for phones": replace(HOME, is_for_phones=False),
    "a relay that is away": replace(
        HOME, addresses=(), relay=replace(RELAY, is_connected=False, problem="no route")
    ),
    "a relay without a certificate": replace(
        HOME, addresses=(), relay=replace(RELAY, certificate=CertificateState())
    ),
    "a relay with an unknown certificate": replace(
        HOME, addresses=(), relay=replace(RELAY, certificate=CertificateState(kind="own"))
    ),
    **{
        f"Tailscale {state}": replace(
            HOME, addresses=(), tailscale=TailscaleFacts(state=state, problem="no daemon")
        )
        for state in ("absent", "unreadable", "stopped", "signed-out")
    },
    "Tailscale without certificates": replace(
        HOME, addresses=(), tailscale=replace(TAILSCALE, certified=())
    ),
    "Tailscale with a certificate for another name": replace(
        HOME, addresses=(), tailscale=replace(TAILSCALE, certified=("other.ts.net",))
    ),
    "Tailscale without names": replace(HOME, addresses=(), tailscale=replace(TAILSCALE, name="")),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_no_phone_can_open_has_no_address_and_a_next_step(name: str) -> None:
    reach = tried(UNUSABLE[name])
    assert (reach.is_usable, reach.url) == (False, None)
    assert reach.next_step
    assert all(each.state != "usable" and each.next_step for each in reach.ways)


@pytest.mark.parametrize("facts", [EVERYTHING, HOME, replace(HOME, addresses=(ZEROTIER,))])
def test_what_was_tried_in_vain_has_no_address(facts: ReachFacts) -> None:
    reach = tried(facts, works=False)
    assert (reach.is_usable, reach.url) == (False, None)
    assert all("does not work: no answer in time" in each.found for each in reach.ways if each.url)


@pytest.mark.parametrize("facts", [EVERYTHING, HOME])
def test_what_was_not_tried_is_not_usable(facts: ReachFacts) -> None:
    assert not describe(facts, {}).is_usable


# ---- single ways ---------------------------------------------------------------------------


def test_a_hub_on_this_computer_alone_names_one_command() -> None:
    reach = tried(replace(HOME, is_for_phones=False, tailscale=TAILSCALE))
    assert reach.found == "Only this computer can reach the hub"
    assert reach.next_step == f"Run: {AGAIN}"
    assert way(reach, "tailscale").next_step == f"Run: {AGAIN}"
    assert targets(replace(HOME, is_for_phones=False, tailscale=TAILSCALE)) == ()


def test_tailscale_is_used_by_its_name_with_its_certificate() -> None:
    target = targets(replace(HOME, tailscale=TAILSCALE))[0]
    assert target.origin == f"https://{NAME}:7272"
    assert target.certificate == "tailscale"
    assert target.listens_at == TAILSCALE.addresses


def test_tailscale_serve_that_leads_to_the_hub_is_used_as_it_is() -> None:
    served = {f"{NAME}:443": "http://127.0.0.1:7272"}
    target = targets(replace(HOME, tailscale=replace(TAILSCALE, served=served)))[0]
    assert (target.origin, target.listens_at) == (f"https://{NAME}", ())
    served = {f"{NAME}:8443": "http://localhost:7272"}
    target = targets(replace(HOME, tailscale=replace(TAILSCALE, served=served)))[0]
    assert target.origin == f"https://{NAME}:8443"


def test_tailscale_serve_that_leads_elsewhere_is_left_alone() -> None:
    served = {f"{NAME}:443": "http://127.0.0.1:3000", f"{NAME}:8443": "http://10.0.0.1:7272"}
    target = targets(replace(HOME, tailscale=replace(TAILSCALE, served=served)))[0]
    assert target.origin == f"https://{NAME}:7272"


def test_an_address_of_the_tailnet_without_certificates_is_a_vpn_address() -> None:
    facts = replace(HOME, addresses=(TAILNET,), tailscale=replace(TAILSCALE, certified=()))
    assert [(each.kind, each.certificate) for each in targets(facts)] == [("vpn", "own")]


def test_a_configured_name_is_first_and_an_own_certificate_keeps_the_port() -> None:
    own = Listening(host="0.0.0.0", port=7272, has_tls=True, allowed_hosts=("desk.example",))
    facts = replace(EVERYTHING, listening=own)
    assert [each.kind for each in targets(facts)] == ["public", "relay"]
    assert way(tried(facts), "network").state == "unavailable"


def test_trust_steps_are_counted_and_a_way_without_them_is_offered() -> None:
    reach = tried(HOME)
    assert reach.trust_steps == TRUST_STEPS
    assert "install Tailscale" in reach.next_step
    signed_out = replace(HOME, tailscale=TailscaleFacts(state="signed-out"))
    assert "tailscale up" in tried(signed_out).next_step


def test_a_firewall_that_may_be_in_the_way_is_named() -> None:
    facts = replace(HOME, tailscale=TAILSCALE, firewall="ufw")
    assert "sudo ufw allow 7272/tcp" in tried(facts).next_step


FACTS = st.builds(
    ReachFacts,
    listening=st.sampled_from(
        [
            Listening(port=7272),
            Listening(port=7272, is_behind_proxy=True, allowed_hosts=("desk.example",)),
            Listening(host="192.168.1.20", port=7272, has_tls=True),
            Listening(host="0.0.0.0", port=7272, has_tls=True, allowed_hosts=("a.example",)),
        ]
    ),
    is_for_phones=st.booleans(),
    addresses=st.lists(
        st.sampled_from([WLAN, WIRE, WIREGUARD, DOCKER, PUBLIC, LOOPBACK, TAILNET])
    ).map(tuple),
    default_address=st.sampled_from([None, WLAN.address, WIRE.address, DOCKER.address]),
    tailscale=st.sampled_from(
        [TAILSCALE, TailscaleFacts(), replace(TAILSCALE, certified=()), replace(TAILSCALE, name="")]
    ),
    relay=st.sampled_from([None, RELAY, replace(RELAY, is_connected=False)]),
    has_authority=st.booleans(),
    is_in_container=st.booleans(),
    firewall=st.sampled_from(["", "ufw", "firewalld"]),
)


@given(FACTS, st.data())
def test_every_combination_has_a_next_step_and_no_address_that_did_not_work(
    facts: ReachFacts, data: st.DataObject
) -> None:
    found = targets(facts)
    outcomes = {
        each.origin: data.draw(st.sampled_from([Outcome(), Outcome(problem="no answer in time")]))
        for each in found
    }
    reach = describe(facts, outcomes)
    good = [each.origin for each in found if not outcomes[each.origin].problem]
    assert reach.url == (good[0] if good else None)
    assert reach.is_usable or reach.next_step
    for each in reach.ways:
        assert each.found[0].isupper()
        assert each.state == "usable" or each.next_step or "better option" in each.found
    loopback = ("127.", "localhost", "[::1]", "172.17.", "8.8.8.8")
    assert not any(name in each.origin for each in found for name in loopback)

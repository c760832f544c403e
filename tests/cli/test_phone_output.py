"""What `up --phone` and `devices pair` print: a QR code only of what a phone can open."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import msgspec
import pytest
from typing_extensions import override

from quarterdeck.cli.phone_output import PairingOffer, print_phone, print_unreachable
from quarterdeck.cli.terminal.screen import Screen
from quarterdeck.http.origins import Listening
from quarterdeck.hub.auth.pairing import qr_text
from quarterdeck.hub.reach import Outcome, Reach, ReachFacts, describe, targets
from quarterdeck.machine.network_interfaces import InterfaceAddress
from quarterdeck.relay import CertificateState, RelayState

HOME = ReachFacts(
    listening=Listening(port=7272),
    is_for_phones=True,
    addresses=(InterfaceAddress("wlan0", "192.168.1.20"),),
    default_address="192.168.1.20",
)
RELAY = RelayState(
    relay="relay.example",
    public_url="https://abc.relay.example",
    is_connected=True,
    certificate=CertificateState(kind="acme"),
)
OFFER = PairingOffer(
    link="https://192.168.1.20:7272/#pair=x&pin=y", code="ABCD-EFGH", scope="approve"
)
TRUST = "http://192.168.1.20:7273"
FINGERPRINT = ":".join(["AB"] * 32)


class Terminal(StringIO):
    encoding = "utf-8"

    @override
    def isatty(self) -> bool:
        return True


def reached(facts: ReachFacts) -> Reach:
    return describe(facts, {each.origin: Outcome() for each in targets(facts)})


def on_network(facts: ReachFacts = HOME) -> Reach:
    return msgspec.structs.replace(reached(facts), trust_url=TRUST, fingerprint=FINGERPRINT)


def printed(reach: Reach, *, with_qr: bool = True, stream: StringIO | None = None) -> str:
    stream = Terminal() if stream is None else stream
    print_phone(Screen(stream, {"NO_COLOR": "1"}), reach, OFFER, with_qr=with_qr)
    return stream.getvalue()


def test_a_phone_with_nothing_to_trust_has_one_code_to_scan() -> None:
    text = printed(reached(replace(HOME, relay=RELAY)))
    assert text.count(qr_text(OFFER.link)) == 1
    assert text.replace(qr_text(OFFER.link), "").count("█") == 0
    assert "A phone can connect from anywhere: https://abc.relay.example" in text
    assert "Trust" not in text


def test_a_phone_on_the_network_has_a_code_to_trust_and_one_to_pair_in_that_order() -> None:
    text = printed(on_network())
    first, second = text.index(qr_text(TRUST)), text.index(qr_text(OFFER.link))
    assert text.index("1. Trust") < first < text.index(TRUST) < text.index("2. Pair") < second
    assert FINGERPRINT in "".join(text.split())
    assert "3 steps" in text
    assert "install Tailscale" in " ".join(text.split())


@pytest.mark.parametrize(("with_qr", "stream"), [(False, Terminal()), (True, StringIO())])
def test_no_code_is_printed_where_none_is_wanted_or_can_be_shown(
    with_qr: bool, stream: StringIO
) -> None:
    text = printed(on_network(), with_qr=with_qr, stream=stream)
    assert "█" not in text
    assert OFFER.link in text
    assert TRUST in text


def test_a_firewall_is_named_besides_the_better_way() -> None:
    text = " ".join(printed(on_network(replace(HOME, firewall="ufw"))).split())
    assert "sudo ufw allow 7272/tcp" in text
    assert "install Tailscale" in text


def test_what_no_phone_can_reach_has_reasons_and_a_step_and_no_code() -> None:
    stream = Terminal()
    reach = describe(replace(HOME, addresses=()), {})
    print_unreachable(Screen(stream, {"NO_COLOR": "1"}), reach)
    text = " ".join(stream.getvalue().split())
    assert "No phone can reach this hub yet." in text
    assert "Tailscale is not installed on this computer." in text
    assert "next To reach the hub from anywhere" in text
    assert "█" not in text

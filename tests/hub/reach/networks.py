"""Two computers on one network, as network namespaces: one for a hub, one for a phone.

hub     lan0 192.168.77.20      docker0 172.17.0.1      tailscale0 100.101.102.103
phone   wlan0 192.168.77.30                             tailscale0 100.101.102.104
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

HUB: Final = "192.168.77.20"
PHONE: Final = "192.168.77.30"

_SCRIPT: Final = """set -e
ip link set lo up
unshare -n sleep 3600 &
phone=$!
here=$(readlink /proc/self/ns/net)
while [ "$(readlink /proc/$phone/ns/net)" = "$here" ]; do sleep 0.01; done
ip link add lan0 type veth peer name wlan0 netns $phone
# Without IPv6: its addresses come a second later, and a browser then drops what it is loading.
ip link set lan0 addrgenmode none
ip addr add 192.168.77.20/24 dev lan0
ip link set lan0 up
ip link add tailscale0 type veth peer name tailscale0 netns $phone
ip link set tailscale0 addrgenmode none
ip addr add 100.101.102.103/24 dev tailscale0
ip link set tailscale0 up
ip link add docker0 type bridge
ip addr add 172.17.0.1/16 dev docker0
ip link set docker0 up
nsenter -t $phone -n sh -e -c '
  ip link set lo up
  ip link set wlan0 addrgenmode none
  ip link set tailscale0 addrgenmode none
  ip addr add 192.168.77.30/24 dev wlan0
  ip link set wlan0 up
  ip addr add 100.101.102.104/24 dev tailscale0
  ip link set tailscale0 up'
ip route add default via 192.168.77.30
echo $$ $phone
cat
kill $phone
"""


@dataclass(frozen=True)
class Networks:
    """The processes that hold the namespaces."""

    hub_process: int
    phone_process: int

    @property
    def in_hub(self) -> tuple[str, ...]:
        """What a command begins with that runs on the hub's computer."""
        return _inside(self.hub_process)

    @property
    def in_phone(self) -> tuple[str, ...]:
        return _inside(self.phone_process)

    def run(self, command: str) -> None:
        """Run a command on the hub's computer."""
        subprocess.run([*self.in_hub, "sh", "-e", "-c", command], check=True, timeout=30)

    def move_hub(self, before: str, after: str) -> None:
        """Give the hub's computer another address, as a router does."""
        self.run(
            f"ip addr del {before}/24 dev lan0; ip addr add {after}/24 dev lan0;"
            f" ip route replace default via {PHONE}"
        )


def _inside(process: int) -> tuple[str, ...]:
    users = () if os.geteuid() == 0 else ("-U", "--preserve-credentials")
    return ("nsenter", "-t", str(process), "-n", *users)


@contextmanager
def open_networks() -> Iterator[Networks]:
    """Make both namespaces; they end with the block."""
    users = () if os.geteuid() == 0 else ("-r",)
    holder = subprocess.Popen(
        ["unshare", *users, "-n", "sh", "-c", _SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        line = holder.stdout.readline()
        assert line, "network namespaces cannot be made here"
        yield Networks(*map(int, line.split()))
    finally:
        holder.communicate(timeout=30)

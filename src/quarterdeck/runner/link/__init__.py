"""The link between a runner and a hub in two processes.

`serving_link` serves a runner on a Unix socket, `serving_remote_link` adds a TLS WebSocket to it;
`connected_runner` is that runner as a `RunnerApi`. A runner on another machine opens the link
itself (`dial_hubs`): the hub's end is a `DialledConnection`.

    in the runner                               in the hub
    LinkServer      all hubs of a runner        RemoteRunner       a `RunnerApi`
    HubConnection   one hub                     RunnerConnection   one runner
    LinkSocket      a connected socket          LinkSocket         its other end

Both ends are in this package, because they share its messages and are tested against each other.
The hub imports its end from here; nothing here imports the hub.
A hub *follows* a log: it has one subscription to it at the runner, for all its clients. One log on
its way to a client, by the names of its classes:

    EncodedLog, ClosedLog   the runner's log of a session: a live one (`host/log/stream`), and one
                            that was closed before the runner started (`runner/logs`)
    LogSource               what both are to their readers (`runner/api`)
    _FollowedLog            subscribes to it for one hub (`runner/link/server`)
    RemoteLog               a `LogSource` again, in the hub (`runner/link/remote_log`)
    Fleet.open_log          finds the machine (`hub/fleet/fleet`): of the hub's own machine the log
                            is a `RemoteLog`; of another one it is a `CopiedLog`, the hub's copy
                            that `Replica` fills from a `RemoteLog`, in a `TranslatedLog`
    SharedLog               the newest events, encoded once for all clients (`hub/streams`)
    Logs                    all of those that have clients: `Logs.open` (`hub/streams`)
"""

from quarterdeck.host import RunSubscriber
from quarterdeck.host.log.heads import event_digest
from quarterdeck.runner.heads import HeadVerdict, LogHead
from quarterdeck.runner.link.dialled import NOTHING_KNOWN, DialledConnection
from quarterdeck.runner.link.handshake import (
    HANDSHAKE_SECONDS,
    LINK_PATH,
    HubChallenge,
    LinkRefused,
    MachineHello,
    MachineProof,
    RefusalCode,
    Welcome,
    hub_text,
    is_hello,
    join_text,
    machine_text,
    origin_of,
    protocol_refusal,
    random_text,
    read_handshake,
    write_handshake,
)
from quarterdeck.runner.link.listeners import dial_hubs, serving_link, serving_remote_link
from quarterdeck.runner.link.memberships import (
    HubLink,
    Membership,
    changing_memberships,
    read_links,
    read_memberships,
)
from quarterdeck.runner.link.messages import (
    LINK_PROTOCOL,
    OLDEST_PROTOCOL,
    RunnerIdentity,
    SessionEntry,
    StateChange,
)
from quarterdeck.runner.link.remote import RemoteRunner, connected_runner
from quarterdeck.runner.link.remote_log import LogIterator
from quarterdeck.runner.link.server import LinkServer
from quarterdeck.runner.link.transport import (
    LINK_MESSAGE_BYTES,
    LinkEnd,
    LinkSocket,
    MessageTransport,
    RunnerAddress,
)

__all__ = [
    "HANDSHAKE_SECONDS",
    "LINK_MESSAGE_BYTES",
    "LINK_PATH",
    "LINK_PROTOCOL",
    "NOTHING_KNOWN",
    "OLDEST_PROTOCOL",
    "DialledConnection",
    "HeadVerdict",
    "HubChallenge",
    "HubLink",
    "LinkEnd",
    "LinkRefused",
    "LinkServer",
    "LinkSocket",
    "LogHead",
    "LogIterator",
    "MachineHello",
    "MachineProof",
    "Membership",
    "MessageTransport",
    "RefusalCode",
    "RemoteRunner",
    "RunSubscriber",
    "RunnerAddress",
    "RunnerIdentity",
    "SessionEntry",
    "StateChange",
    "Welcome",
    "changing_memberships",
    "connected_runner",
    "dial_hubs",
    "event_digest",
    "hub_text",
    "is_hello",
    "join_text",
    "machine_text",
    "origin_of",
    "protocol_refusal",
    "random_text",
    "read_handshake",
    "read_links",
    "read_memberships",
    "serving_link",
    "serving_remote_link",
    "write_handshake",
]

"""Runs agents and their sessions; every update becomes a numbered event in a durable log."""

from quarterdeck.host.capabilities import FsHandler, TerminalHandler, derive_client_capabilities
from quarterdeck.host.endpoint import AgentAndSessionOwner, HostEndpoint
from quarterdeck.host.host import Host
from quarterdeck.host.log.stream import EncodedLog, RunSubscriber
from quarterdeck.host.optional_calls import OptionalCalls, check_title
from quarterdeck.host.options import (
    HostOptions,
    ResolvedHostOptions,
    RestartBackoff,
    resolve_agent_definition,
    resolve_host_options,
)
from quarterdeck.host.requests.elicitations import is_elicitation_id
from quarterdeck.host.requests.iteration import PendingElicitation, PendingPermission
from quarterdeck.host.requests.permission_request import (
    Ask,
    Decided,
    OnPermission,
    PermissionRequest,
    Verdict,
)
from quarterdeck.host.requests.policy_hook import decide_by_rules
from quarterdeck.host.requests.requested_call import call_of
from quarterdeck.machine import (
    DefaultFsHandler,
    DefaultTerminalHandler,
    guarded_command,
    kill_tree,
    resolve_roots,
)
from quarterdeck.protocol import AgentDefinition, PromptResult

__all__ = [
    "AgentAndSessionOwner",
    "AgentDefinition",
    "Ask",
    "Decided",
    "DefaultFsHandler",
    "DefaultTerminalHandler",
    "EncodedLog",
    "FsHandler",
    "Host",
    "HostEndpoint",
    "HostOptions",
    "OnPermission",
    "OptionalCalls",
    "PendingElicitation",
    "PendingPermission",
    "PermissionRequest",
    "PromptResult",
    "ResolvedHostOptions",
    "RestartBackoff",
    "RunSubscriber",
    "TerminalHandler",
    "Verdict",
    "call_of",
    "check_title",
    "decide_by_rules",
    "derive_client_capabilities",
    "guarded_command",
    "is_elicitation_id",
    "kill_tree",
    "resolve_agent_definition",
    "resolve_host_options",
    "resolve_roots",
]

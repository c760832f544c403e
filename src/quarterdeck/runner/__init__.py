"""Runs agents: sessions, their log, the prompt queue, pending requests and the policy.

`Runner` is what a program holds to run agents. `RunnerApi` is the protocol that it implements, and
the only thing that the hub knows of it. Names are loaded when they are first used: a command that
only reads the configuration does not load a host.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quarterdeck.runner.actor import PROGRAM, Actor, not_found
    from quarterdeck.runner.adoption.service import ForeignProgram, ForeignState, FoundSession
    from quarterdeck.runner.api import (
        AgentRemoved,
        AgentUpdated,
        Diagnostic,
        HealthChanged,
        LogSource,
        MachineUpdated,
        News,
        PermissionView,
        QueueChanged,
        RequestUpdated,
        RunnerApi,
        RunnerHealth,
        SessionDeleted,
        SessionUpdated,
    )
    from quarterdeck.runner.confinement import AgentConfinement
    from quarterdeck.runner.context_commands import ContextSession, check_started
    from quarterdeck.runner.install_commands import InstallJob
    from quarterdeck.runner.options import Retention, RunnerOptions
    from quarterdeck.runner.permissions.card import PermissionCard
    from quarterdeck.runner.permissions.decision_index import MOST_REASON, RecordedDecision
    from quarterdeck.runner.prompts.state import is_prompt_state, is_settled
    from quarterdeck.runner.prompts.store import (
        META_SCOPE,
        PromptEntry,
        PromptError,
        PromptMode,
        permitted_blocks,
    )
    from quarterdeck.runner.runner import Runner
    from quarterdeck.runner.sessions.catalogue import SessionOverview, SessionTitle
    from quarterdeck.runner.sessions.manager import can_load, can_resume
    from quarterdeck.runner.sign_in.commands import SignInOutput, SignInState
    from quarterdeck.runner.sign_in.methods import SignInMethod
    from quarterdeck.runner.telemetry.settings import TelemetrySettings, telemetry_problem
    from quarterdeck.runner.workspaces import (
        Folder,
        FolderListing,
        SessionFile,
        check_absolute,
        relative_folder,
    )

_MODULES = {
    "Actor": "actor",
    "AgentConfinement": "confinement",
    "AgentRemoved": "api",
    "AgentUpdated": "api",
    "ContextSession": "context_commands",
    "Diagnostic": "api",
    "Folder": "workspaces",
    "ForeignProgram": "adoption.service",
    "ForeignState": "adoption.service",
    "FoundSession": "adoption.service",
    "FolderListing": "workspaces",
    "HealthChanged": "api",
    "InstallJob": "install_commands",
    "LogSource": "api",
    "MachineUpdated": "api",
    "META_SCOPE": "prompts.store",
    "MOST_REASON": "permissions.decision_index",
    "News": "api",
    "PROGRAM": "actor",
    "PermissionCard": "permissions.card",
    "PermissionView": "api",
    "PromptEntry": "prompts.store",
    "PromptError": "prompts.store",
    "PromptMode": "prompts.store",
    "QueueChanged": "api",
    "RecordedDecision": "permissions.decision_index",
    "RequestUpdated": "api",
    "Retention": "options",
    "Runner": "runner",
    "RunnerApi": "api",
    "RunnerHealth": "api",
    "RunnerOptions": "options",
    "SessionDeleted": "api",
    "SessionFile": "workspaces",
    "SessionOverview": "sessions.catalogue",
    "SessionTitle": "sessions.catalogue",
    "SessionUpdated": "api",
    "SignInMethod": "sign_in.methods",
    "SignInOutput": "sign_in.commands",
    "SignInState": "sign_in.commands",
    "TelemetrySettings": "telemetry.settings",
    "can_load": "sessions.manager",
    "can_resume": "sessions.manager",
    "check_absolute": "workspaces",
    "check_started": "context_commands",
    "is_prompt_state": "prompts.state",
    "is_settled": "prompts.state",
    "not_found": "actor",
    "permitted_blocks": "prompts.store",
    "relative_folder": "workspaces",
    "telemetry_problem": "telemetry.settings",
}

__all__ = [
    "META_SCOPE",
    "MOST_REASON",
    "PROGRAM",
    "Actor",
    "AgentConfinement",
    "AgentRemoved",
    "AgentUpdated",
    "ContextSession",
    "Diagnostic",
    "Folder",
    "FolderListing",
    "ForeignProgram",
    "ForeignState",
    "FoundSession",
    "HealthChanged",
    "InstallJob",
    "LogSource",
    "MachineUpdated",
    "News",
    "PermissionCard",
    "PermissionView",
    "PromptEntry",
    "PromptError",
    "PromptMode",
    "QueueChanged",
    "RecordedDecision",
    "RequestUpdated",
    "Retention",
    "Runner",
    "RunnerApi",
    "RunnerHealth",
    "RunnerOptions",
    "SessionDeleted",
    "SessionFile",
    "SessionOverview",
    "SessionTitle",
    "SessionUpdated",
    "SignInMethod",
    "SignInOutput",
    "SignInState",
    "TelemetrySettings",
    "can_load",
    "can_resume",
    "check_absolute",
    "check_started",
    "is_prompt_state",
    "is_settled",
    "not_found",
    "permitted_blocks",
    "relative_folder",
    "telemetry_problem",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

"""Commands of the context protocol (seed 000) in a runner: one order of prompts, one policy.

    send_message            the prompt queue: the same order as prompts of the page and the CLI
    resume                  opens a closed or disconnected session, then queues its prompt
    set_permission_policy   the permission inbox: decided together with the owner's rules
    all others              the adapter of the session's agent (`context_adapters`)

A message that runs at once returns when it runs, as the protocol describes it. One that has to wait
for others returns at once, as a queued entry of the prompt queue.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import Final
from uuid import uuid4

from msgspec import UNSET, Struct

from quarterdeck.agents.adapters import blocks_of, can
from quarterdeck.errors import AcpError
from quarterdeck.host import Host
from quarterdeck.runner.actor import Actor
from quarterdeck.runner.context_adapters import ContextAdapters
from quarterdeck.runner.permissions.inbox import PermissionInbox
from quarterdeck.runner.prompts.queue import PromptQueue
from quarterdeck.runner.prompts.store import PromptEntry
from quarterdeck.runner.sessions.catalogue import SessionCatalogue, SessionTitle
from quarterdeck.runner.sessions.manager import SessionManager
from quarterdeck.views.context import (
    ACPCapabilities,
    ACPCommand,
    EnvironmentAgent,
    EnvironmentRuntime,
    ResumeCommand,
    SendMessageCommand,
    SetPermissionPolicyCommand,
)
from quarterdeck.views.context.contract import UNKNOWN, SessionFacts

_RUNTIME: Final = EnvironmentRuntime(os=platform.system().lower(), arch=platform.machine())


class ContextSession(Struct, frozen=True, kw_only=True):
    """What the context protocol shows of a session and its events do not say."""

    facts: SessionFacts
    title: SessionTitle
    model: str | None = None
    mode: str | None = None


class ContextCommands:
    """Carries out commands and describes sessions for clients of the context protocol."""

    def __init__(
        self,
        host: Host,
        catalogue: SessionCatalogue,
        manager: SessionManager,
        prompts: PromptQueue,
        inbox: PermissionInbox,
    ) -> None:
        self._host = host
        self._catalogue = catalogue
        self._manager = manager
        self._prompts = prompts
        self._inbox = inbox
        self.adapters = ContextAdapters(host)

    async def execute(self, session_id: str, command: ACPCommand, by: Actor) -> PromptEntry | None:
        """Carry out a command; return the prompt that it queued, if any.

        Raises:
            QuarterdeckError: if it cannot be carried out, with a code that says why.
        """
        match command:
            case SetPermissionPolicyCommand(policy=policy):
                session = self._catalogue.get(session_id)
                await self._inbox.set_context_policy(session.session_id, policy, by)
            case SendMessageCommand():
                return await self._send(session_id, command, by)
            case ResumeCommand(prompt=prompt):
                await self._manager.reopen(session_id)
                if prompt:
                    return await self._send(session_id, SendMessageCommand(message=prompt), by)
            case _:
                await self.adapters.execute(session_id, command)
        return None

    async def _send(self, session_id: str, command: SendMessageCommand, by: Actor) -> PromptEntry:
        accepts_images = bool(command.attachments) and await self._accepts_images(session_id)
        blocks = blocks_of(command, accepts_images=accepts_images)
        session = self._host.get_session(session_id)
        is_prompting = session is not None and session.status == "prompting"
        has_to_wait = is_prompting or self._prompts.is_busy(session_id)
        key = f"context-{uuid4().hex}"
        entry = await self._prompts.add(session_id, key, blocks, by=by)
        while entry.state == "queued" and not has_to_wait:
            changed = self._prompts.changes.next
            entry = await self._prompts.get(session_id, key)
            if entry.state == "queued":
                await changed.wait()
        check_started(entry)
        return entry

    async def _accepts_images(self, session_id: str) -> bool:
        session = await self._manager.ensure_active(session_id)
        agent = None if session.agent_id is UNSET else self._host.get_agent(session.agent_id)
        return can(agent, "image")

    # ---- what clients see ------------------------------------------------------------------

    def session(self, session_id: str) -> ContextSession | None:
        """Return a session, live or closed; None if there is none."""
        found = self._catalogue.find(session_id)
        if found is None:
            return None
        name = found.agent if isinstance(found.agent, str) and found.agent else UNKNOWN
        model, mode = self._host.current_settings(session_id)
        agent = EnvironmentAgent(name=name, version=UNKNOWN, display_name=name)
        facts = SessionFacts(session_id=session_id, cwd=found.cwd, agent=agent, runtime=_RUNTIME)
        title = self._catalogue.title(session_id)
        return ContextSession(facts=facts, title=title, model=model, mode=mode)

    def capabilities(self, installed: Iterable[str]) -> list[ACPCapabilities]:
        """Return what agents can do: those that can be started, and those of live sessions."""
        return self.adapters.capabilities(installed)


def check_started(entry: PromptEntry) -> None:
    """Raise why a prompt never ran.

    Raises:
        AcpError: with the code of what refused it.
    """
    if entry.error is not UNSET and entry.seq is UNSET and entry.state in ("failed", "cancelled"):
        raise AcpError(entry.error.code, entry.error.message)

"""Commands about foreign programs and their sessions: adopt, release, list.

`AdoptionApi` is a part of `RunnerApi`, and `AdoptionCommands` the part of `Runner` that implements
it. Sessions that an ACP agent keeps itself (`session/list`) are listed here, too: `load_session`
adopts one of those.
"""

from __future__ import annotations

from typing import Any, Protocol

from quarterdeck.host import Host
from quarterdeck.runner.actor import PROGRAM, Actor, log_command
from quarterdeck.runner.adoption.service import Adoption, ForeignProgram, FoundSession
from quarterdeck.runner.sessions.catalogue import SessionCatalogue, SessionOverview
from quarterdeck.runner.sessions.manager import SessionManager

JsonObject = dict[str, Any]


class AdoptionApi(Protocol):
    """The part of `RunnerApi` about sessions that were begun elsewhere."""

    async def foreign_programs(self) -> list[ForeignProgram]:
        """Return the programs whose sessions can be adopted, and which are followed."""

    async def adopt_program(
        self, name: str, *, past: bool = False, hook: bool = False, by: Actor = PROGRAM
    ) -> ForeignProgram:
        """Follow the sessions of a program that run or change from now on; with `past`, all.

        With `hook`, its settings get the hook that makes its permission requests answerable here.

        Raises:
            RequestRejected: if there is no such program, or its settings cannot be changed.
        """

    async def release_program(self, name: str, *, by: Actor = PROGRAM) -> ForeignProgram:
        """Follow a program no more, and remove the hook; what was recorded stays.

        Raises:
            RequestRejected: if there is no such program, or the hook cannot be removed from its
                settings; it is not followed any more in any case.
        """

    async def foreign_sessions(self, name: str) -> list[FoundSession]:
        """Return the sessions of a program on this machine, those that changed last first.

        Raises:
            RequestRejected: if there is no such program.
        """

    async def adopt_session(
        self, name: str, session_id: str, *, by: Actor = PROGRAM
    ) -> SessionOverview:
        """Record one session of a program, and follow it; returns when it is recorded.

        Raises:
            RequestRejected: if there is no such program or session.
            AcpError: `acpjs/session-closed` if it was deleted or closed here.
        """

    async def agent_sessions(
        self, agent_id: str, *, cursor: str | None = None, cwd: str | None = None
    ) -> JsonObject:
        """Return a page of an agent's own list of sessions, as it sends it.

        Raises:
            AcpError: `acpjs/capability-unsupported` if it offers none.
        """


class AdoptionCommands:
    """The part of `Runner` that implements `AdoptionApi`."""

    host: Host
    adoption: Adoption
    catalogue: SessionCatalogue
    manager: SessionManager

    def report_known(self, session_id: str) -> None:
        """Report that a session has changed, if it is one of this runner."""
        if self.catalogue.find(session_id) is not None:
            self.report_session(session_id)

    def report_session(self, session_id: str) -> None:
        """Report that a session has changed."""
        raise NotImplementedError

    async def foreign_programs(self) -> list[ForeignProgram]:
        return await self.adoption.programs()

    async def adopt_program(
        self, name: str, *, past: bool = False, hook: bool = False, by: Actor = PROGRAM
    ) -> ForeignProgram:
        log_command("adopt_program", by)
        if hook:
            await self.adoption.install_hook(name)
        await self.adoption.adopt(name, "past" if past else "live")
        return await self._program(name)

    async def release_program(self, name: str, *, by: Actor = PROGRAM) -> ForeignProgram:
        log_command("release_program", by)
        await self.adoption.stop(name)
        await self.adoption.remove_hook(name)
        return await self._program(name)

    async def _program(self, name: str) -> ForeignProgram:
        return next(each for each in await self.adoption.programs() if each.name == name)

    async def foreign_sessions(self, name: str) -> list[FoundSession]:
        return await self.adoption.found_sessions(name)

    async def adopt_session(
        self, name: str, session_id: str, *, by: Actor = PROGRAM
    ) -> SessionOverview:
        log_command("adopt_session", by)
        await self.adoption.adopt_session(name, session_id)
        return await self.catalogue.shown(session_id)

    async def agent_sessions(
        self, agent_id: str, *, cursor: str | None = None, cwd: str | None = None
    ) -> JsonObject:
        return dict(await self.host.list_sessions(agent_id, cursor=cursor, cwd=cwd))

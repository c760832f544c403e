"""A session of an ACP agent: events out, commands in."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Protocol, assert_never

from quarterdeck.adapters.feed import SessionFeed, approval, denial, selected
from quarterdeck.dialects.context import (
    ACPCapabilities,
    ACPCommand,
    ACPError,
    AnswerQuestionCommand,
    ApproveToolCallCommand,
    CancelCommand,
    ContextEvent,
    DenyToolCallCommand,
    PauseCommand,
    PendingApproval,
    ResumeCommand,
    SendMessageCommand,
    SetPermissionPolicyCommand,
    TerminateCommand,
    resolution,
)
from quarterdeck.errors import AcpError, QuarterdeckError, RpcError
from quarterdeck.host import Host
from quarterdeck.protocol import ERROR_CODES

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,([A-Za-z0-9+/=\s]+)")


class Owner(Protocol):
    """What a session needs of its adapter."""

    def get_capabilities(self) -> ACPCapabilities: ...
    async def revive(self, session_id: str) -> None: ...
    async def release(self, feed: SessionFeed, *, is_ended: bool) -> None: ...


class AcpSession:
    """One attachment to a session; several may be attached to the same."""

    def __init__(self, host: Host, owner: Owner, feed: SessionFeed) -> None:
        self._host = host
        self._owner = owner
        self._feed = feed
        self._subscriptions: list[Callable[[], None]] = []
        self._is_attached = True

    @property
    def session_id(self) -> str:
        return self._feed.session_id

    @property
    def capabilities(self) -> ACPCapabilities:
        return self._owner.get_capabilities()

    def on_event(self, callback: Callable[[ContextEvent], None]) -> Callable[[], None]:
        """Call `callback` with every event from now on; return what ends that.

        Events have the numbers that `get_history` gives them: subscribe, then read the history,
        and drop what comes twice.
        """
        unsubscribe = self._feed.listen(callback)
        self._subscriptions.append(unsubscribe)
        return unsubscribe

    async def get_history(self) -> list[ContextEvent]:
        return await self._feed.history()

    async def detach(self) -> None:
        """Stop listening; the agent goes on, and so does a permission policy."""
        await self._leave(is_ended=False)

    async def _leave(self, *, is_ended: bool) -> None:
        if self._is_attached:
            self._is_attached = False
            for unsubscribe in self._subscriptions:
                unsubscribe()
            await self._owner.release(self._feed, is_ended=is_ended)

    # ---- commands --------------------------------------------------------------------------

    async def execute(self, command: ACPCommand) -> None:
        """Carry out a command.

        Raises:
            AcpError: if it cannot be carried out, with a code that says why.
        """
        if not self._is_attached:
            message = f"detached from session {self.session_id}; attach to it again"
            raise AcpError(ERROR_CODES["session_closed"], message)
        try:
            await self._execute(command)
        except RpcError as error:
            facts = {"code": error.code, "message": error.message, "data": error.data}
            code = ERROR_CODES["agent_error"]
            raise AcpError(code, f"the agent refused: {error.explanation}", data=facts) from error

    async def _execute(self, command: ACPCommand) -> None:
        match command:
            case SendMessageCommand():
                await self._feed.prompt(self._blocks(command))
            case ApproveToolCallCommand() | DenyToolCallCommand():
                await self._decide(command)
            case AnswerQuestionCommand():
                await self._answer(command)
            case CancelCommand():
                await self._host.cancel(self.session_id)
            case PauseCommand():
                raise unsupported("ACP agents cannot pause; cancel the turn and prompt again")
            case ResumeCommand(prompt=prompt):
                await self._owner.revive(self.session_id)
                if prompt:
                    await self._feed.prompt([{"type": "text", "text": prompt}])
            case TerminateCommand():
                await self._terminate()
            case SetPermissionPolicyCommand(policy=policy):
                self._feed.set_policy(policy)
            case _:
                assert_never(command)

    async def _decide(self, command: ApproveToolCallCommand | DenyToolCallCommand) -> None:
        pending = self._feed.pending(command.request_id)
        if command.tool_call_id != pending.tool_call_id:
            message = f"request {command.request_id} is not about call {command.tool_call_id}"
            raise AcpError(ERROR_CODES["config_invalid"], message)
        if isinstance(command, DenyToolCallCommand):
            outcome = denial(pending)
            outcome["_meta"] = resolution("user", command.reason)
        else:
            allowed = approval(pending)
            if allowed is None:
                raise unsupported("the agent offers no option that allows this call")
            outcome = allowed
        await self._host.respond_permission(pending.request_id, outcome)

    async def _answer(self, command: AnswerQuestionCommand) -> None:
        """Answer a question: one of a form, or a permission request with answers as options."""
        form = self._feed.pending_question(command.question_id)
        if form is not None:
            response = self._feed.take_answer(form, command.question_id, command.answer)
            if response is not None:
                await self._host.respond_elicitation(form.request_id, response)
            return
        asked_id = command.question_id.partition("#")[0]
        pending = self._feed.pending_of_call(asked_id)
        if pending is not None:
            option = _option(pending, command.answer)
            await self._host.respond_permission(pending.request_id, selected(option))
        elif any(each.request_id == asked_id for each in self._host.get_elicitations()):
            message = f"question {command.question_id} was answered or withdrawn"
            raise AcpError(ERROR_CODES["already_answered"], message)
        else:
            raise unsupported(
                f"question {command.question_id} takes no answer here; "
                "cancel the turn and send the answer as a message"
            )

    async def _terminate(self) -> None:
        snapshot = self._host.get_session(self.session_id)
        if snapshot is not None and snapshot.status == "prompting":
            await self._host.cancel(self.session_id)
        if snapshot is not None and snapshot.status not in ("closed", "deleted"):
            await self._host.close_session(self.session_id)
        await self._leave(is_ended=True)

    def _blocks(self, command: SendMessageCommand) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = [{"type": "text", "text": command.message}]
        for attachment in command.attachments:
            image = _DATA_URL.fullmatch(attachment.url)
            if image is None:
                name = attachment.url.rpartition("/")[2] or "image"
                link = {"type": "resource_link", "uri": attachment.url, "name": name}
                blocks.append(link)
            elif self.capabilities.features.multimodal:
                blocks.append({"type": "image", "mimeType": image[1], "data": image[2]})
            else:
                raise unsupported("the agent does not take images; send a link to it")
        return blocks


def _option(pending: PendingApproval, answer: str) -> Any:
    wanted = answer.strip().casefold()
    for option in pending.options:
        names = (option.get("optionId"), option.get("name"))
        if any(isinstance(name, str) and name.casefold() == wanted for name in names):
            return option
    choices = ", ".join(str(option.get("name")) for option in pending.options)
    raise AcpError(ERROR_CODES["config_invalid"], f"{answer!r} is not one of: {choices}")


def unsupported(message: str) -> AcpError:
    return AcpError(ERROR_CODES["capability_unsupported"], message)


def context_error(error: QuarterdeckError) -> ACPError:
    """Return an error of ours as the Agent Context Protocol has them."""
    if not isinstance(error, AcpError):
        return ACPError(code="INTERNAL", message=str(error), recoverable=True)
    is_final = error.code in (ERROR_CODES["session_closed"], ERROR_CODES["agent_exited"])
    facts = error.data if isinstance(error.data, dict) else {}
    agent_code = facts.get("code")
    return ACPError(
        code=error.code.rpartition("/")[2].replace("-", "_").upper(),
        message=error.message,
        recoverable=not is_final,
        details=error.data,
        agent_code=None if agent_code is None else str(agent_code),
    )

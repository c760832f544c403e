"""The 9 commands that a consumer sends, told apart by `command`, and the permission policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Literal, TypeAlias, get_args

from quarterdeck.dialects.context.policy_types import PermissionPolicy
from quarterdeck.dialects.context.shapes import Shape


class ImageAttachment(Shape, frozen=True, kw_only=True, tag_field="type", tag="image"):
    url: str


class _Command(Shape, frozen=True, kw_only=True, tag_field="command"):
    """A command; `command` tells which."""

    command: ClassVar[str]


class SendMessageCommand(_Command, frozen=True, kw_only=True, tag="send_message"):
    command: ClassVar[Literal["send_message"]] = "send_message"
    message: str
    attachments: tuple[ImageAttachment, ...] = ()


class ApproveToolCallCommand(_Command, frozen=True, kw_only=True, tag="approve_tool_call"):
    command: ClassVar[Literal["approve_tool_call"]] = "approve_tool_call"
    request_id: str
    tool_call_id: str


class DenyToolCallCommand(_Command, frozen=True, kw_only=True, tag="deny_tool_call"):
    command: ClassVar[Literal["deny_tool_call"]] = "deny_tool_call"
    request_id: str
    tool_call_id: str
    reason: str | None = None


class AnswerQuestionCommand(_Command, frozen=True, kw_only=True, tag="answer_question"):
    command: ClassVar[Literal["answer_question"]] = "answer_question"
    question_id: str
    answer: str


class CancelCommand(_Command, frozen=True, kw_only=True, tag="cancel"):
    command: ClassVar[Literal["cancel"]] = "cancel"


class PauseCommand(_Command, frozen=True, kw_only=True, tag="pause"):
    command: ClassVar[Literal["pause"]] = "pause"


class ResumeCommand(_Command, frozen=True, kw_only=True, tag="resume"):
    command: ClassVar[Literal["resume"]] = "resume"
    prompt: str | None = None


class TerminateCommand(_Command, frozen=True, kw_only=True, tag="terminate"):
    command: ClassVar[Literal["terminate"]] = "terminate"


class SetPermissionPolicyCommand(_Command, frozen=True, kw_only=True, tag="set_permission_policy"):
    command: ClassVar[Literal["set_permission_policy"]] = "set_permission_policy"
    policy: PermissionPolicy


ACPCommand: TypeAlias = (
    SendMessageCommand
    | ApproveToolCallCommand
    | DenyToolCallCommand
    | AnswerQuestionCommand
    | CancelCommand
    | PauseCommand
    | ResumeCommand
    | TerminateCommand
    | SetPermissionPolicyCommand
)
ContextCommand: TypeAlias = ACPCommand
COMMAND_CLASSES: Final[Mapping[str, type[ACPCommand]]] = {
    command_class.command: command_class for command_class in get_args(ACPCommand)
}

"""What an adapter declares that it can do, so that a view can adapt to it."""

from __future__ import annotations

from quarterdeck.dialects.context.shapes import IntegrationMethod, Shape


class AgentIdentity(Shape, frozen=True, kw_only=True):
    """`version` is null on the wire where it is not known."""

    name: str
    display_name: str
    icon: str
    version: str | None
    integration_method: IntegrationMethod


class StreamingFeatures(Shape, frozen=True, kw_only=True):
    messages: bool
    tool_args: bool
    thinking: bool


class ApprovalFeatures(Shape, frozen=True, kw_only=True):
    tool_calls: bool
    preview: bool


class SessionControlFeatures(Shape, frozen=True, kw_only=True):
    pause: bool
    resume: bool
    cancel: bool


class PlanningFeatures(Shape, frozen=True, kw_only=True):
    todos: bool
    plan_mode: bool


class ResourceFeatures(Shape, frozen=True, kw_only=True):
    token_usage: bool
    cost_tracking: bool
    context_window: bool


class FileFeatures(Shape, frozen=True, kw_only=True):
    diffs: bool
    batched_changes: bool


class InteractionFeatures(Shape, frozen=True, kw_only=True):
    questions: bool
    notifications: bool


class Features(Shape, frozen=True, kw_only=True):
    streaming: StreamingFeatures
    approval: ApprovalFeatures
    session_control: SessionControlFeatures
    sub_agents: bool
    planning: PlanningFeatures
    resources: ResourceFeatures
    file_operations: FileFeatures
    git: bool
    web_search: bool
    multimodal: bool
    user_interaction: InteractionFeatures
    thinking: bool
    custom_events: tuple[str, ...]


class ACPCapabilities(Shape, frozen=True, kw_only=True):
    protocol_version: str
    agent: AgentIdentity
    features: Features

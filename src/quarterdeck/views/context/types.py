"""Types that events, commands and capabilities share; camelCase on the wire.

A key that is absent is None here and is left out of the JSON. An unknown number or time is absent,
even where the seed requires one: zero would be a wrong value.

`ACPCapabilities` is what an adapter declares that it can do, so that a view can adapt to it.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

ACP_VERSION = "1.0.0"
ACP_MIN_VERSION = "1.0.0"

SessionStatus: TypeAlias = Literal[
    "starting",
    "running",
    "thinking",
    "waiting_for_input",
    "waiting_for_approval",
    "paused",
    "idle",
    "completed",
    "error",
]
MessageRole: TypeAlias = Literal["user", "assistant", "system"]
ChangeType: TypeAlias = Literal["created", "modified", "deleted"]
ResolvedBy: TypeAlias = Literal["user", "policy", "timeout"]
NotificationLevel: TypeAlias = Literal["info", "warning", "error", "success"]
TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed"]
IntegrationMethod: TypeAlias = Literal["sdk", "http", "pty", "file-watch", "mcp"]


class Shape(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Frozen, with camel case on the wire."""


class ACPError(Shape, frozen=True, kw_only=True):
    """An error, and whether the session can continue."""

    code: str
    message: str
    recoverable: bool
    details: Any = None
    agent_code: str | None = None


class TokenUsage(Shape, frozen=True, kw_only=True):
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    thought_tokens: int | None = None
    """Beyond the seed: tokens spent on thinking; not part of `output_tokens`."""


class CostBreakdown(Shape, frozen=True, kw_only=True):
    """Agents report a total; `input` and `output` only if the agent reports them."""

    total: float
    currency: str
    input: float | None = None
    output: float | None = None


class FileChangeSummary(Shape, frozen=True, kw_only=True):
    path: str
    change_type: ChangeType
    lines_added: int
    lines_removed: int


class FileChange(Shape, frozen=True, kw_only=True):
    """One of several changes in a `file:batch`."""

    path: str
    change_type: ChangeType
    diff: str | None = None
    lines_added: int | None = None
    lines_removed: int | None = None


class SessionSummary(Shape, frozen=True, kw_only=True):
    """The totals of a session; `duration` in milliseconds."""

    files_changed: tuple[FileChangeSummary, ...]
    token_usage: TokenUsage
    duration: float
    tool_calls_count: int
    messages_count: int
    error_count: int
    cost: CostBreakdown | None = None
    tokens_known: bool = False
    """Beyond the seed: False if the agent reported no usage and the zeros mean "unknown"."""


class EnvironmentAgent(Shape, frozen=True, kw_only=True):
    name: str
    version: str
    display_name: str


class EnvironmentModel(Shape, frozen=True, kw_only=True):
    id: str
    display_name: str | None = None
    provider: str | None = None


class EnvironmentProject(Shape, frozen=True, kw_only=True):
    path: str
    name: str
    language: str | None = None
    framework: str | None = None


class EnvironmentRuntime(Shape, frozen=True, kw_only=True):
    os: str
    arch: str
    node_version: str | None = None


class EnvironmentContext(Shape, frozen=True, kw_only=True):
    """Agent, model, project and machine; an unknown value is the word "unknown"."""

    agent: EnvironmentAgent
    model: EnvironmentModel
    project: EnvironmentProject
    runtime: EnvironmentRuntime


class TodoItem(Shape, frozen=True, kw_only=True):
    content: str
    status: TodoStatus


# ---- message content, by `type` -------------------------------------------------


class TextContent(Shape, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str


class ImageContent(Shape, frozen=True, kw_only=True, tag_field="type", tag="image"):
    url: str
    mime_type: str | None = None


class ToolUseContent(Shape, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    tool_call_id: str
    name: str
    input: Any


class ToolResultContent(Shape, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    tool_call_id: str
    content: str
    is_error: bool | None = None


MessageContent: TypeAlias = TextContent | ImageContent | ToolUseContent | ToolResultContent


# ---- structured tool output, by `type` ------------------------------------------


class FileDiffOutput(Shape, frozen=True, kw_only=True, tag_field="type", tag="file_diff"):
    path: str
    diff: str
    change_type: ChangeType


class SearchMatch(Shape, frozen=True, kw_only=True):
    file: str
    line: int
    content: str


class SearchResultsOutput(Shape, frozen=True, kw_only=True, tag_field="type", tag="search_results"):
    results: tuple[SearchMatch, ...]


class CommandOutput(Shape, frozen=True, kw_only=True, tag_field="type", tag="command_output"):
    exit_code: int
    stdout: str
    stderr: str


class WebContentOutput(Shape, frozen=True, kw_only=True, tag_field="type", tag="web_content"):
    url: str
    title: str | None = None
    summary: str | None = None


ToolStructuredOutput: TypeAlias = (
    FileDiffOutput | SearchResultsOutput | CommandOutput | WebContentOutput
)


# ---- approval previews, by `type` -----------------------------------------------


class DiffPreview(Shape, frozen=True, kw_only=True, tag_field="type", tag="diff"):
    path: str
    diff: str


class CommandPreview(Shape, frozen=True, kw_only=True, tag_field="type", tag="command"):
    command: str
    working_dir: str


class DescriptionPreview(Shape, frozen=True, kw_only=True, tag_field="type", tag="description"):
    text: str


ApprovalPreview: TypeAlias = DiffPreview | CommandPreview | DescriptionPreview


# ---- git and web operations, by `kind` ------------------------------------------


class GitCommit(Shape, frozen=True, kw_only=True, tag_field="kind", tag="commit"):
    hash: str
    message: str
    files_changed: int


class GitBranchCreate(Shape, frozen=True, kw_only=True, tag_field="kind", tag="branch_create"):
    name: str
    from_: str = field(name="from")


class GitBranchSwitch(Shape, frozen=True, kw_only=True, tag_field="kind", tag="branch_switch"):
    name: str


class GitPullRequest(Shape, frozen=True, kw_only=True, tag_field="kind", tag="pr_create"):
    number: int
    title: str
    url: str


class GitPush(Shape, frozen=True, kw_only=True, tag_field="kind", tag="push"):
    remote: str
    branch: str


class GitStash(Shape, frozen=True, kw_only=True, tag_field="kind", tag="stash"):
    action: Literal["push", "pop"]


GitOperation: TypeAlias = (
    GitCommit | GitBranchCreate | GitBranchSwitch | GitPullRequest | GitPush | GitStash
)


class WebSearchResult(Shape, frozen=True, kw_only=True):
    title: str
    url: str
    snippet: str


class WebSearch(Shape, frozen=True, kw_only=True, tag_field="kind", tag="search"):
    query: str
    results: tuple[WebSearchResult, ...] | None = None


class WebFetch(Shape, frozen=True, kw_only=True, tag_field="kind", tag="fetch"):
    url: str
    title: str | None = None
    status_code: int | None = None


WebOperation: TypeAlias = WebSearch | WebFetch


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

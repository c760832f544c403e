"""What an ACP agent can do through the Agent Context Protocol; a flag is true only if it works.

always      messages and thoughts stream; approvals with previews; cancel; todos, plan mode,
sub-agents, files with diffs, git and web operations and custom events are derived;
usage, cost and context window are told as far as the agent tells them
resume      if the agent can load or resume sessions
multimodal  if it takes images
questions   if the host offers forms; other questions are told, but only some can be answered
never       pause; arguments as they are written (few agents show them)
"""

from __future__ import annotations

from msgspec import UNSET

from quarterdeck.dialects.context import (
    ACP_VERSION,
    ACPCapabilities,
    AgentIdentity,
    ApprovalFeatures,
    Features,
    FileFeatures,
    InteractionFeatures,
    PlanningFeatures,
    ResourceFeatures,
    SessionControlFeatures,
    StreamingFeatures,
)
from quarterdeck.protocol import AgentDefinition, AgentSnapshotWire


def can(agent: AgentSnapshotWire | None, what: str) -> bool:
    """Say whether an agent declared that it can `load`, `list`, `resume` or take an `image`."""
    if agent is None or agent.capabilities is UNSET:
        return False
    declared = agent.capabilities
    if what == "load":
        return declared.load_session is True
    holder = declared.prompt_capabilities if what == "image" else declared.session_capabilities
    return isinstance(holder, dict) and holder.get(what) not in (None, False)


def declared_capabilities(
    definition: AgentDefinition, agent: AgentSnapshotWire | None, *, answers_forms: bool
) -> ACPCapabilities:
    meta = definition.meta or {}
    named = {key: value for key, value in meta.items() if isinstance(value, str)}
    return ACPCapabilities(
        protocol_version=ACP_VERSION,
        agent=AgentIdentity(
            name=definition.id,
            display_name=named.get("displayName", definition.id),
            icon=named.get("icon", ""),
            version=named.get("version"),
            integration_method="sdk",
        ),
        features=Features(
            streaming=StreamingFeatures(messages=True, tool_args=False, thinking=True),
            approval=ApprovalFeatures(tool_calls=True, preview=True),
            session_control=SessionControlFeatures(
                pause=False, resume=can(agent, "load") or can(agent, "resume"), cancel=True
            ),
            sub_agents=True,
            planning=PlanningFeatures(todos=True, plan_mode=True),
            resources=ResourceFeatures(token_usage=True, cost_tracking=True, context_window=True),
            file_operations=FileFeatures(diffs=True, batched_changes=True),
            git=True,
            web_search=True,
            multimodal=can(agent, "image"),
            user_interaction=InteractionFeatures(questions=answers_forms, notifications=True),
            thinking=True,
            custom_events=("acp", "quarterdeck"),
        ),
    )

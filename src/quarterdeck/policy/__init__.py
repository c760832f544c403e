"""What a tool call would do, how risky it is, and what the owner's rules decide; pure.

`decide(policy, call, workspace=…)` is the one function that decides by rules, for the hub and for
the permission policies of the Agent Context Protocol.
"""

from quarterdeck.policy.call import Call, Reading
from quarterdeck.policy.call_reader import NamedCall, read_call
from quarterdeck.policy.command_line import CommandLine, read_command, read_commands
from quarterdeck.policy.command_rules import words_to_spell
from quarterdeck.policy.decision import Decision, DecisionKind, decide
from quarterdeck.policy.globs import plain_path, relative_path
from quarterdeck.policy.inputs import is_text_key, joined_words
from quarterdeck.policy.risk import assess_risk
from quarterdeck.policy.risk_findings import Risk, RiskLevel, git_parts, risk_of_call
from quarterdeck.policy.rules import (
    Patterns,
    PermissionPolicy,
    Policy,
    PolicyRules,
    Rule,
    policy_of,
)
from quarterdeck.policy.simple_command import SimpleCommand
from quarterdeck.policy.strict_reading import obstacle_of
from quarterdeck.policy.tools import (
    PATH_KEYS,
    ToolCategory,
    categorize_call,
    categorize_tool,
    describe_tool_call,
    text_of,
)
from quarterdeck.policy.wrappers import unwrapped

__all__ = [
    "PATH_KEYS",
    "Call",
    "CommandLine",
    "Decision",
    "DecisionKind",
    "NamedCall",
    "Patterns",
    "PermissionPolicy",
    "Policy",
    "PolicyRules",
    "Reading",
    "Risk",
    "RiskLevel",
    "Rule",
    "SimpleCommand",
    "ToolCategory",
    "assess_risk",
    "categorize_call",
    "categorize_tool",
    "decide",
    "describe_tool_call",
    "git_parts",
    "is_text_key",
    "joined_words",
    "obstacle_of",
    "plain_path",
    "policy_of",
    "read_call",
    "read_command",
    "read_commands",
    "relative_path",
    "risk_of_call",
    "text_of",
    "unwrapped",
    "words_to_spell",
]

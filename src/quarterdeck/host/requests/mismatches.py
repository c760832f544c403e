"""Reports what an agent did after an approval, if it differs from what was shown.

It is an event of the session, so that it is in the log, the transcript and the audit, and it is a
diagnostic of the host, for programs that only follow that stream.
"""

from __future__ import annotations

from quarterdeck.host.log.emitter import Emitter
from quarterdeck.host.requests.approved_calls import Mismatch
from quarterdeck.host.sessions.session import HostSession

CODE = "approval-mismatch"


def report_mismatch(emitter: Emitter, session: HostSession, found: Mismatch | None) -> None:
    """Record a mismatch in the log of its session, and publish it."""
    if found is None:
        return
    payload = {
        "code": CODE,
        "requestId": found.request_id,
        "toolCallId": found.tool_call_id,
        "differences": found.differences,
    }
    names = [each["field"] for each in found.differences]
    reason = f"call {found.tool_call_id} was allowed as it was shown; the agent reports another"
    with emitter.journal.batch():
        emitter.session_event(session, CODE, payload, {"quarterdeck": {"added": reason}})
        emitter.diagnostic(
            "warn",
            CODE,
            f"{reason} {', '.join(names)}",
            session_id=session.id,
            data={
                "requestId": found.request_id,
                "toolCallId": found.tool_call_id,
                "different": names,
                "differences": found.differences,
            },
        )

"""A log with everything that this view has an event for."""

from __future__ import annotations

from tests.views.context.support import Log, edit_diff

TEXT = {"type": "content", "content": {"type": "text", "text": "done"}}
MODES = {
    "currentModeId": "code",
    "availableModes": [{"id": "code", "name": "Code"}, {"id": "plan", "name": "Plan"}],
}


def everything() -> Log:
    log = Log().started(modes=MODES)
    log.prompted().think("Hm.").say("I edit.")
    log.update("tool_call", toolCallId="t1", title="Edit", kind="edit", status="pending")
    arguments = [{"type": "content", "content": {"type": "text", "text": '{"path": "/p/a'}}]
    log.update("tool_call_update", toolCallId="t1", content=arguments)
    log.ask({"toolCallId": "t1", "content": [edit_diff()]}).answer("yes")
    log.update("tool_call_update", toolCallId="t1", status="completed")
    both = [edit_diff("/p/b.py"), edit_diff("/p/c.py", None)]
    log.update("tool_call", toolCallId="t2", title="apply_patch", kind="edit", content=both)
    log.update("tool_call_update", toolCallId="t2", status="completed")
    command = {"command": "git commit -m x && git push origin main"}
    output = "[main 1a2b3c4] x\n 1 file changed, 1 insertion(+)\n   0a..1b  main -> main\n"
    log.update("tool_call", toolCallId="t3", title="Bash", kind="execute", rawInput=command)
    log.update(
        "tool_call_update",
        toolCallId="t3",
        status="completed",
        rawOutput={"stdout": output, "stderr": "", "exit_code": 0},
    )
    log.update("tool_call", toolCallId="t4", title="WebSearch", rawInput={"query": "hooks"})
    log.update("tool_call_update", toolCallId="t4", status="failed", content=[TEXT])
    log.update("tool_call", toolCallId="t5", title="WebFetch", rawInput={"url": "https://x.y"})
    log.update("tool_call_update", toolCallId="t5", status="completed", content=[TEXT])
    task = {"description": "look", "prompt": "look well", "subagent_type": "explore"}
    log.update("tool_call", toolCallId="t6", title="Task", kind="think", rawInput=task)
    log.update("tool_call_update", toolCallId="t6", status="in_progress", content=[TEXT])
    log.update("tool_call_update", toolCallId="t6", status="completed", content=[TEXT])
    questions = [{"question": "Which?", "options": [{"label": "red"}, {"label": "green"}]}]
    raw_input = {"questions": questions}
    log.update("tool_call", toolCallId="t7", title="AskUserQuestion", rawInput=raw_input)
    log.update("tool_call_update", toolCallId="t7", status="completed", content=[TEXT])
    fields = {"db": {"type": "string", "enum": ["PostgreSQL", "MySQL"]}}
    form = {"mode": "form", "message": "Which?", "requestedSchema": {"properties": fields}}
    log.form(form, "pending").form(form, "answered", action="accept")
    log.update("plan", entries=[{"content": "a", "priority": "high", "status": "pending"}])
    log.update("current_mode_update", currentModeId="plan")
    log.update("notice", severity="warning", title="Careful", description="Slow today.")
    log.update("compaction_update", compactionId="c", status="in_progress")
    log.update("usage_update", used=10, size=100, cost={"amount": 0.5, "currency": "USD"})
    log.update("from_the_future", new=True)
    log.say("Done.").finished(usage={"inputTokens": 5, "outputTokens": 7, "totalTokens": 12})
    error = {"code": -32603, "message": "429 Too many requests; retry after 30"}
    log.prompted("again").finished(error=error)
    log.status("disconnected").status("resuming").status("active", resumed=True)
    return log.status("closed")

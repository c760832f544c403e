"""A recording of a real agent as the log that a host makes of it, with the recording's times.

By hand, after the projection was changed on purpose: `python -m tests.dialects.context.recordings`
writes the golden projections anew; read the difference before you commit it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from quarterdeck.dialects.context import ContextEvent, ContextProjector, encode_context_event
from quarterdeck.host.repair import ToolCalls, mark
from quarterdeck.protocol import (
    Event,
    Normalized,
    SessionEvent,
    make_session_event,
    normalize_session_update,
)

VECTORS = Path(__file__).parents[2] / "vectors"
TRACES = VECTORS / "traces"
GOLDEN = VECTORS / "context"
RECORDINGS = (
    "codex-perm_cancel",
    "fast-agent-sessions_2",
    "gemini-edit_allow",
    "goose-shell_allow",
    "kimi-code-ask",
    "kimi-code-task",
    "opencode-plan",
    "vibe-outside",
)
BEGINNING = 1_700_000_000_000
Json = dict[str, Any]


class _Log:
    """Both sides of a recording, as the events of its sessions."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._seqs: dict[str, int] = {}
        self._calls: dict[Any, Json] = {}
        self._asked: dict[Any, tuple[str, str]] = {}
        self._loading: dict[str, list[Normalized]] = {}
        self._repairs: dict[str, ToolCalls] = {}
        self._echoes: dict[str, list[Json]] = {}
        self._who: Json | None = None
        self._ts = 0

    def take(self, record: Json) -> None:
        message = record["msg"]
        if not isinstance(message, dict):
            return
        self._ts = BEGINNING + int(record["t"])
        params = message.get("params")
        given = params if isinstance(params, dict) else {}
        if record["dir"] == "c2a":
            self._client(message, given)
        elif record["dir"] == "a2c" and "method" in message:
            self._agent(message, given)
        elif record["dir"] == "a2c" and message.get("id") in self._calls:
            self._answered(self._calls.pop(message["id"]), message)

    def _add(self, session_id: str, kind: str, payload: Json, more: Json | None = None) -> None:
        seq = self._seqs[session_id] = self._seqs.get(session_id, 0) + 1
        self.events.append(
            make_session_event(
                kind, session_id, seq=seq, ts=self._ts, payload=payload, extensions=more
            )
        )

    def _client(self, message: Json, params: Json) -> None:
        method, session_id = message.get("method"), params.get("sessionId")
        if method is None:
            if message.get("id") in self._asked:
                self._decided(*self._asked.pop(message["id"]), message.get("result") or {})
            return
        if "id" in message:
            self._calls[message["id"]] = message
        if method == "session/load":
            if session_id in self._seqs:
                self._add(str(session_id), "session-status-change", {"status": "resuming"})
            self._loading[str(session_id)] = []
        if method == "session/prompt" and isinstance(params.get("prompt"), list):
            self._prompted(str(session_id), params["prompt"])

    def _prompted(self, session_id: str, blocks: list[Json]) -> None:
        self._add(session_id, "session-status-change", {"status": "prompting"})
        message_id = f"quarterdeck-prompt-{self._seqs[session_id] + 1}"
        self._echoes[session_id] = list(blocks)
        for block in blocks:
            payload = {"content": block, "messageId": message_id}
            self._add(session_id, "user-message-chunk", payload, mark("the prompt"))

    def _decided(self, session_id: str, request_id: str, result: Json) -> None:
        payload: Json = {"requestId": request_id, "status": "answered"}
        payload["outcome"] = result.get("outcome") or {"outcome": "cancelled"}
        self._add(session_id, "permission-request-resolved", payload)

    def _agent(self, message: Json, params: Json) -> None:
        session_id = str(params.get("sessionId"))
        repairs = self._repairs.setdefault(session_id, ToolCalls())
        if message["method"] == "session/update":
            said = normalize_session_update(params["update"])
            if session_id in self._loading or session_id not in self._seqs:
                self._loading.setdefault(session_id, []).append(said)
            elif said.type == "user-message-chunk" and self._is_echo(session_id, said.payload):
                pass
            else:
                self._said(session_id, said)
        elif message["method"] == "session/request_permission":
            request_id = f"perm-{message['id']}"
            self._asked[message["id"]] = (session_id, request_id)
            for added in repairs.announced_for(params["toolCall"]):
                self._add(session_id, added.type, added.payload, added.extensions)
            payload = {key: params[key] for key in ("toolCall", "options")}
            created = {"requestId": request_id, **payload}
            self._add(session_id, "permission-request-created", created)

    def _is_echo(self, session_id: str, payload: Json) -> bool:
        echoes = self._echoes.get(session_id, [])
        is_echo = payload.get("content") in echoes
        if is_echo:
            echoes.remove(payload["content"])
        return is_echo

    def _said(self, session_id: str, said: Normalized) -> None:
        for each in self._repairs.setdefault(session_id, ToolCalls()).repaired(said):
            self._add(session_id, each.type, each.payload, each.extensions)

    def _answered(self, call: Json, answer: Json) -> None:
        result = answer.get("result") or {}
        if call["method"] == "initialize" and isinstance(result.get("agentInfo"), dict):
            self._who = {"agentInfo": result["agentInfo"]}
        session_id = str((call.get("params") or {}).get("sessionId") or result.get("sessionId"))
        if call["method"] == "session/prompt" and session_id in self._seqs:
            payload: Json = {"stopReason": result.get("stopReason", "end_turn")}
            payload |= {key: result[key] for key in ("usage",) if result.get(key)}
            payload |= {key: answer[key] for key in ("error",) if key in answer}
            more = {"_meta": result["_meta"]} if result.get("_meta") is not None else None
            self._add(session_id, "prompt-finished", payload, more)
            self._add(session_id, "session-status-change", {"status": "active"})
        elif call["method"] == "session/new" and "sessionId" in result:
            self._add(session_id, "session-config-init", _settings(result), self._who)
            self._add(session_id, "session-status-change", {"status": "active"})
            for said in self._loading.pop(session_id, []):
                self._said(session_id, said)
        elif call["method"] == "session/load" and "error" not in answer:
            self._add(session_id, "session-reset", {"reason": "load"})
            for said in self._loading.pop(session_id, []):
                self._said(session_id, said)
            if _settings(result):
                self._add(session_id, "session-config-init", _settings(result), self._who)
            active = {"status": "active", "resumed": True}
            self._add(session_id, "session-status-change", active)


def _settings(result: Json) -> Json:
    key = "configOptions" if result.get("configOptions") else "modes"
    return {key: result[key]} if result.get(key) else {}


def log_of(path: Path) -> list[SessionEvent]:
    """Return the events of all sessions of a recording, in the order of the recording."""
    log = _Log()
    for line in path.read_text(encoding="utf-8").splitlines():
        log.take(json.loads(line))
    return [event for event in log.events if isinstance(event, SessionEvent)]


def project(events: list[SessionEvent]) -> list[ContextEvent]:
    """Project the sessions of a log, each by itself, in the order of the log."""
    projectors: dict[str, ContextProjector] = {}
    told: list[ContextEvent] = []
    for event in events:
        facts = {
            "sessionId": event.session_id,
            "cwd": "/workspace/project",
            "agentDefinitionId": "recorded",
        }
        projector = projectors.setdefault(event.session_id, ContextProjector(facts))
        told += projector.feed(event)
    return told


def shortened(event: ContextEvent) -> Json:
    """Return an event as JSON, without the lists that an agent offers at length."""
    written: Json = json.loads(encode_context_event(event))
    if written.get("eventName") in ("available_commands", "config_options"):
        written["data"] = {key: len(value) for key, value in written["data"].items()}
    return written


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name in RECORDINGS:
        told = [shortened(event) for event in project(log_of(TRACES / f"{name}.jsonl"))]
        lines = [json.dumps(event, ensure_ascii=False) for event in told]
        (GOLDEN / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

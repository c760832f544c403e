"""A session as a document: every message, and none of it becomes markup."""

from typing import Any

from markdown_it import MarkdownIt

from quarterdeck.protocol import SessionState, initial_state, make_session_event, reduce
from quarterdeck.views.markdown import document

EVIL = (
    "# heading\n<img src=x onerror=alert(1)>\n![beacon](https://evil.example/x.png)\n"
    "[click](javascript:alert(1))\n```\n````\n~~~\n</pre>\x1b]52;c;x\x07"
)


def folded(*events: tuple[str, dict[str, Any]]) -> SessionState:
    state = initial_state("s-1")
    for seq, (kind, payload) in enumerate(events, 1):
        state = reduce(state, make_session_event(kind, "s-1", seq=seq, ts=0, payload=payload))
    return state


def message(text: str, kind: str = "agent-message-chunk") -> tuple[str, dict[str, Any]]:
    return kind, {"content": {"type": "text", "text": text}}


def test_messages_and_tool_calls_are_in_order() -> None:
    diff = {"type": "diff", "path": "a.py", "oldText": "x", "newText": "y"}
    call = {"toolCallId": "c", "title": "Edit a.py", "kind": "edit", "content": [diff]}
    text = document(
        folded(
            message("Mend it.", "user-message-chunk"),
            ("tool-call", {**call, "status": "completed"}),
            message("Mended."),
        ),
        cwd="/shop",
        last_seq=3,
    )
    assert text.index("Mend it.") < text.index("Edit a.py") < text.index("Mended.")
    assert "```diff\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x\n+y\n```" in text
    assert "- folder: `/shop`" in text


def test_nothing_of_an_agent_becomes_markup() -> None:
    call = {"toolCallId": EVIL, "title": EVIL, "kind": EVIL, "status": EVIL, "rawInput": EVIL}
    text = document(
        folded(
            message(EVIL),
            ("session-info-update", {"title": EVIL}),
            ("tool-call", {**call, "locations": [{"path": EVIL}]}),
            ("plan", {"entries": [{"content": EVIL, "status": "x", "priority": "low"}]}),
        ),
        cwd=EVIL,
    )
    html = MarkdownIt("commonmark").render(text)
    assert "<img" not in html
    assert "<a " not in html
    assert "\x1b" not in text
    assert html.count("<h1>") == 1
    assert html.count("<h2>") == 3


def test_every_character_of_a_message_is_there() -> None:
    assert "```\n````\n~~~\n" in document(folded(message(EVIL)))

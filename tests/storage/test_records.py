from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from quarterdeck.storage import SessionMeta
from quarterdeck.storage.contract import decode_meta, encode_meta, listed_meta

FULL = SessionMeta(
    session_id="s",
    agent_definition_id="claude",
    cwd="/work",
    mcp_servers=({"name": "m"},),
    additional_directories=("/more",),
    title=None,
    updated_at="2026-01-01T00:00:00Z",
    lifecycle="closed",
)


def test_a_meta_is_the_line_that_acpjs_writes() -> None:
    assert json.loads(encode_meta(FULL)) == {
        "kind": "session-meta",
        "sessionId": "s",
        "agentDefinitionId": "claude",
        "cwd": "/work",
        "mcpServers": [{"name": "m"}],
        "additionalDirectories": ["/more"],
        "title": None,
        "updatedAt": "2026-01-01T00:00:00Z",
        "lifecycle": "closed",
    }


def test_what_is_absent_is_left_out_except_what_acpjs_always_writes() -> None:
    assert encode_meta(SessionMeta(session_id="s", cwd="/")) == (
        b'{"kind":"session-meta","sessionId":"s","cwd":"/",'
        b'"additionalDirectories":[],"lifecycle":"open"}'
    )


def test_decoding_undoes_encoding() -> None:
    assert decode_meta(encode_meta(FULL)) == FULL


def test_the_last_seq_is_not_written_but_that_of_deleted_events_is() -> None:
    assert encode_meta(replace(FULL, last_seq=9)) == encode_meta(FULL)
    assert decode_meta(encode_meta(FULL, freed_seq=7)).last_seq == 7


def test_keys_of_a_newer_version_survive() -> None:
    newer = b'{"kind":"session-meta","sessionId":"s","cwd":"/","title":"old","pinned":true}'
    rewritten = json.loads(encode_meta(FULL, before=newer))
    assert rewritten["pinned"] is True
    assert rewritten["title"] is None


def test_a_line_that_is_no_meta_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_meta(b'{"sessionId":"s"}')


def test_a_listed_meta_has_the_last_seq_of_the_log() -> None:
    assert listed_meta("s", encode_meta(FULL, freed_seq=2), 5) == replace(FULL, last_seq=5)


def test_a_meta_that_cannot_be_read_is_listed_as_if_there_were_none() -> None:
    bare = SessionMeta(session_id="s", cwd="", last_seq=5)
    assert listed_meta("s", b'{"sessionId":"s","cwd":"/","lifecycle":"archived"}', 5) == bare
    assert listed_meta("s", b"{", 5) == bare
    assert encode_meta(FULL, before=b"{") == encode_meta(FULL)

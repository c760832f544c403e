from typing import Any

import pytest
from msgspec import UNSET, ValidationError

from quarterdeck.acp import Unknown, dec_hook, decode, lenient, schema, to_dict
from quarterdeck.errors import SchemaMismatch

STDIO = {"name": "n", "command": "c", "args": [], "env": []}


def test_a_field_that_may_default_is_absent_if_it_cannot_be_read() -> None:
    progress = decode(schema.ToolCallProgress, {"toolCallId": "t", "title": 7, "status": ["x"]})
    assert (progress.title, progress.status) == (UNSET, UNSET)


def test_a_field_that_may_not_default_is_refused_if_it_cannot_be_read() -> None:
    with pytest.raises(SchemaMismatch, match=r"ReadTextFileRequest\.line"):
        decode(schema.ReadTextFileRequest, {"sessionId": "s", "path": "/p", "line": "one"})


def test_metadata_that_is_no_object_is_absent() -> None:
    assert decode(schema.CancelNotification, {"sessionId": "s", "_meta": 3}).meta is UNSET


def test_unreadable_items_of_a_union_are_kept_in_their_place() -> None:
    content = [{"type": "diff"}, "text", {"type": "terminal", "terminalId": "t"}]
    progress = decode(schema.ToolCallProgress, {"toolCallId": "t", "content": content})
    assert progress.content == (
        Unknown("ToolCallContent", "diff", {"type": "diff"}),
        Unknown("ToolCallContent", None, "text"),
        schema.TerminalToolCallContent(terminal_id="t"),
    )
    assert to_dict(progress)["content"] == content


def test_other_unreadable_items_are_left_out_where_the_schema_allows_it() -> None:
    entries = [{"content": "a", "priority": "high", "status": "pending"}, {"content": "b"}, 3]
    plan = decode(schema.AgentPlanUpdate, {"entries": entries})
    assert [entry.content for entry in plan.entries] == ["a"]


def test_an_unreadable_item_is_rejected_where_the_schema_does_not_allow_it() -> None:
    with pytest.raises(SchemaMismatch):
        decode(schema.PromptRequest, {"sessionId": "s", "prompt": [{"type": "text"}]})


def test_a_list_that_may_default_is_empty_if_it_is_missing_or_no_list() -> None:
    assert decode(schema.SetSessionConfigOptionResponse, {}).config_options == ()
    assert decode(schema.ListSessionsResponse, {"sessions": "none"}).sessions == ()


def test_null_counts_as_empty_where_the_schema_allows_it() -> None:
    request = decode(schema.NewSessionRequest, {"cwd": "/", "mcpServers": None})
    assert request.mcp_servers == ()
    terminal = decode(
        schema.CreateTerminalRequest, {"sessionId": "s", "command": "c", "args": None}
    )
    assert terminal.args is UNSET


def test_a_known_variant_that_lacks_what_it_needs_is_refused() -> None:
    with pytest.raises(SchemaMismatch):
        decode(
            schema.SessionNotification,
            {"sessionId": "s", "update": {"sessionUpdate": "plan_update"}},
        )


def test_a_bent_field_deep_inside_a_variant_is_forgiven() -> None:
    block = {
        "type": "text",
        "text": "t",
        "annotations": {"priority": "high", "audience": ["user", 1]},
    }
    request = decode(schema.PromptRequest, {"sessionId": "s", "prompt": [block]})
    annotations = schema.Annotations(audience=("user",))
    assert request.prompt == (schema.TextContentBlock(text="t", annotations=annotations),)


def test_a_bent_field_inside_a_hooked_variant_is_forgiven() -> None:
    method = {"id": "i", "name": "n", "description": 7}
    response = decode(schema.InitializeResponse, {"protocolVersion": 1, "authMethods": [method]})
    assert response.auth_methods == (schema.AuthMethodAgent(id="i", name="n"),)


@pytest.mark.parametrize("server", [STDIO, {**STDIO, "type": "stdio"}])
def test_a_server_without_tag_or_with_its_name_as_tag_is_a_stdio_server(server: Any) -> None:
    read = decode(schema.NewSessionRequest, {"cwd": "/", "mcpServers": [server]}).mcp_servers
    assert isinstance(read[0], schema.McpServerStdio)
    assert to_dict(read[0]) == server


def test_a_server_of_an_unknown_kind_is_not_taken_for_a_stdio_server() -> None:
    server = {**STDIO, "type": "pigeon"}
    request = decode(schema.NewSessionRequest, {"cwd": "/", "mcpServers": [server]})
    assert request.mcp_servers == (Unknown("McpServer", "pigeon", server),)


def test_a_config_value_of_an_unknown_type_is_read_as_the_id_of_a_value() -> None:
    """The schema: unknown types with string payloads deserialize into this variant."""
    request = {"sessionId": "s", "configId": "c", "type": "colour", "value": "red"}
    read = decode(schema.SetSessionConfigOptionRequest, request)
    assert isinstance(read, schema.SetSessionConfigOptionSelectRequest)
    assert to_dict(read) == request


def test_a_boolean_config_value_is_read() -> None:
    request = {"sessionId": "s", "configId": "c", "type": "boolean", "value": True}
    read = decode(schema.SetSessionConfigOptionRequest, request)
    assert read == schema.SetSessionConfigOptionBooleanRequest(
        session_id="s", config_id="c", value=True
    )


def test_resources_are_distinguished_by_their_fields() -> None:
    text = {"uri": "u", "text": "t"}
    blob = {"uri": "u", "blob": "b"}
    link = {"uri": "u", "link": "l"}
    read = [
        decode(schema.EmbeddedResourceContentBlock, {"resource": each}).resource
        for each in (text, blob, link)
    ]
    assert read == [
        schema.TextResourceContents(uri="u", text="t"),
        schema.BlobResourceContents(uri="u", blob="b"),
        Unknown("EmbeddedResourceResource", None, link),
    ]


def test_grouped_and_plain_options_are_distinguished() -> None:
    plain = {"value": "v", "name": "n"}
    group = {"group": "g", "name": "n", "options": [plain]}
    read = lenient([plain, group], schema.SessionConfigSelectOptions)
    assert [type(each) for each in read] == [
        schema.SessionConfigSelectOption,
        schema.SessionConfigSelectGroup,
    ]


def test_the_slow_way_alone_gives_what_the_fast_one_gives() -> None:
    value = {"accept": {"a": 1, "b": ["x"], "c": True, "d": 0.5}}["accept"]
    answer = {"action": "accept", "content": value}
    assert lenient(answer, schema.CreateElicitationResponse) == decode(
        schema.CreateElicitationResponse, answer
    )


def test_values_of_a_mapping_are_read_one_by_one() -> None:
    fields = {"a": {"type": "string"}, "b": {"type": "colour", "x": 1}}
    form = decode(schema.ElicitationSchema, {"properties": fields})
    assert isinstance(form.properties, dict)
    assert form.properties["b"] == Unknown("ElicitationPropertySchema", "colour", fields["b"])
    assert to_dict(form)["properties"] == fields


def test_what_cannot_be_read_at_all_is_refused() -> None:
    with pytest.raises(ValidationError):
        lenient("text", schema.McpServer)
    with pytest.raises(NotImplementedError):
        dec_hook(complex, {})

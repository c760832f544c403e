from typing import Any, assert_type

from quarterdeck.acp import PROTOCOL_VERSION, Method, NotificationMethod, methods, schema

# Not in the schema any more, but agents still answer it.
LEGACY = {("agent", "session/set_model")}
TABLES: dict[str, tuple[dict[str, Method[Any, Any]], dict[str, NotificationMethod[Any]]]] = {
    "agent": (methods.AGENT_METHODS, methods.AGENT_NOTES),
    "client": (methods.CLIENT_METHODS, methods.CLIENT_NOTES),
    "protocol": ({}, methods.PROTOCOL_NOTES),
    "proxy": (methods.PROXY_METHODS, methods.PROXY_NOTES),
}


def of_kind(document: dict[str, Any], *suffixes: str) -> set[tuple[str, str]]:
    """Side and method of every definition of the schema that is named like one of `suffixes`."""
    return {
        (definition["x-side"], definition["x-method"])
        for name, definition in document["$defs"].items()
        if "x-method" in definition and name.endswith(suffixes)
    }


def our_methods() -> dict[tuple[str, str], Method[Any, Any]]:
    return {
        (side, name): method
        for side, (table, _) in TABLES.items()
        for name, method in table.items()
    }


def our_notes() -> dict[tuple[str, str], NotificationMethod[Any]]:
    return {
        (side, name): note for side, (_, table) in TABLES.items() for name, note in table.items()
    }


def test_our_methods_are_those_of_the_schema(unstable: dict[str, Any]) -> None:
    assert set(our_methods()) - LEGACY == of_kind(unstable, "Request", "Response")
    assert set(our_methods()) >= LEGACY


def test_our_notifications_are_those_of_the_schema(unstable: dict[str, Any]) -> None:
    assert set(our_notes()) == of_kind(unstable, "Notification")


def test_a_call_is_stable_if_the_stable_schema_has_it(stable: dict[str, Any]) -> None:
    stable_methods = {key for key, method in our_methods().items() if method.stable}
    assert stable_methods == of_kind(stable, "Request", "Response")
    assert {key for key, note in our_notes().items() if note.stable} == of_kind(
        stable, "Notification"
    )


def test_a_call_knows_its_name_and_side() -> None:
    for key, method in our_methods().items():
        assert (method.side, method.name) == key
    for key, note in our_notes().items():
        assert (note.side, note.name) == key


def test_requests_and_responses_are_those_of_the_schema(unstable: dict[str, Any]) -> None:
    for name, definition in unstable["$defs"].items():
        if "x-method" not in definition:
            continue
        key = (definition["x-side"], definition["x-method"])
        if name.endswith("Notification"):
            assert our_notes()[key].params == getattr(schema, name)
        elif name.endswith("Request"):
            assert our_methods()[key].request == getattr(schema, name)
        else:
            assert our_methods()[key].response == getattr(schema, name)


def test_error_codes_are_those_of_the_schema(stable: dict[str, Any]) -> None:
    codes = {each["const"] for each in stable["$defs"]["ErrorCode"]["anyOf"] if "const" in each}
    assert codes == {
        methods.PARSE_ERROR,
        methods.INVALID_REQUEST,
        methods.METHOD_NOT_FOUND,
        methods.INVALID_PARAMS,
        methods.INTERNAL_ERROR,
        methods.REQUEST_CANCELLED,
        methods.AUTHENTICATION_REQUIRED,
        methods.RESOURCE_NOT_FOUND,
    }
    assert methods.AUTHENTICATION_REQUIRED == -32000
    assert methods.RESOURCE_NOT_FOUND == -32002
    assert methods.REQUEST_CANCELLED == -32800


def test_we_speak_version_one() -> None:
    assert PROTOCOL_VERSION == 1


def test_a_method_reads_its_request_and_its_response() -> None:
    request = methods.SESSION_NEW.read_request(b'{"cwd":"/w","mcpServers":[]}')
    assert_type(request, schema.NewSessionRequest)
    assert request == schema.NewSessionRequest(cwd="/w", mcp_servers=())
    response = methods.SESSION_NEW.read_response(b'{"sessionId":"s"}')
    assert_type(response, schema.NewSessionResponse)
    assert response.session_id == "s"


def test_a_union_keeps_its_type_through_a_method() -> None:
    answer = methods.ELICITATION_CREATE.read_response({"action": "decline"})
    assert_type(answer, schema.CreateElicitationResponse)
    assert answer == schema.DeclineElicitationResponse()


def test_a_cancelled_request_is_named_by_its_id() -> None:
    for request_id in (7, "7", None):
        note = methods.CANCEL_REQUEST.read({"requestId": request_id})
        assert_type(note, schema.CancelRequestNotification)
        assert note.request_id == request_id


def test_an_answer_of_null_is_an_empty_answer() -> None:
    assert methods.SESSION_SET_MODE.read_response(b"null") == schema.SetSessionModeResponse()

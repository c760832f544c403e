"""Messages of errors."""

from typing import Any

import pytest

from quarterdeck.errors import RpcError


@pytest.mark.parametrize(
    ("data", "explanation"),
    [
        ({"details": "no such model"}, "Internal error: no such model"),
        ("no such model", "Internal error: no such model"),
        ({"details": "Internal error"}, "Internal error"),
        ({"details": "x" * 5000}, f"Internal error: {'x' * 1000}..."),
        ({"details": " "}, "Internal error"),
        ({"details": {"nested": True}}, "Internal error"),
        ([1, 2], "Internal error"),
        (None, "Internal error"),
    ],
)
def test_the_explanation_of_an_agents_error_has_its_details(data: Any, explanation: str) -> None:
    assert RpcError(-32603, "Internal error", data).explanation == explanation

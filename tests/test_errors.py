"""What errors say."""

from typing import Any

import pytest

from quarterdeck.errors import RpcError


@pytest.mark.parametrize(
    ("data", "said"),
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
def test_an_error_of_an_agent_is_told_with_its_details(data: Any, said: str) -> None:
    assert RpcError(-32603, "Internal error", data).explanation == said

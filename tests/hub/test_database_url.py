"""URLs of databases: variables, passwords, what is shown."""

from __future__ import annotations

import pytest

from quarterdeck.hub.database_url import (
    database_url,
    database_url_problem,
    has_password,
    public_url,
)


@pytest.mark.parametrize(
    ("template", "url"),
    [
        ("postgresql://hub@db/q", "postgresql://hub@db/q"),
        ("postgresql://hub:${PASSWORD}@db/q", "postgresql://hub:a%40b%2Fc@db/q"),
        ("${URL}", "postgresql://hub:secret@db/q"),
    ],
)
def test_variables_have_their_values(template: str, url: str) -> None:
    environ = {"PASSWORD": "a@b/c", "URL": "postgresql://hub:secret@db/q"}
    assert database_url(template, environ) == url


@pytest.mark.parametrize(
    ("template", "is_written"),
    [
        ("", False),
        ("${URL}", False),
        ("postgresql://hub@db/q", False),
        ("postgresql://hub:${PASSWORD}@db/q", False),
        ("postgresql://hub:secret@db/q", True),
        ("postgresql://hub@db/q?password=secret", True),
        ("postgresql://hub@db/q?password=${PASSWORD}", False),
    ],
)
def test_a_password_in_a_file_is_noticed(template: str, is_written: bool) -> None:
    assert has_password(template) == is_written


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://hub:secret@db:5433/q",
        "postgresql://hub@db:5433/q?password=secret",
        "postgresql://hub:secret@db:5433/q?sslmode=require",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    assert public_url(url) == "postgresql://hub@db:5433/q"


@pytest.mark.parametrize("url", ["mysql://db/q", "hub@db", "/hub.db", "postgresql//x", "http://[x"])
def test_other_urls_are_refused(url: str) -> None:
    assert "postgresql://USER@HOST/DATABASE" in (database_url_problem(url) or "")

"""The page's own tests, which node runs."""

from __future__ import annotations

import subprocess

from tools.web import WEB, node


def test_the_tests_of_the_page_pass() -> None:
    result = subprocess.run(
        [node(), "--test", "--test-timeout=60000", "tests/**/*.test.ts"],
        cwd=WEB,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=200,
    )
    assert result.returncode == 0, result.stdout

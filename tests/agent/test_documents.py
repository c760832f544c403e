"""The commands that docs/embed/agent.md shows for HTTP work, with another port."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "embed" / "agent.md"

# Stands in for curl, which not every computer has: the options that the document uses.
CURL = f"""#!{sys.executable}
import sys, urllib.request
headers, data, url, words = {{}}, None, None, iter(sys.argv[1:])
for word in words:
    if word == "-H":
        name, _, value = next(words).partition(": ")
        headers[name] = value
    elif word == "-d":
        data = next(words).encode()
    elif word not in ("-s", "-sN"):
        url = word
with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as response:
    for line in response:
        print(line.decode(), end="", flush=True)
"""


def shown_commands() -> list[str]:
    """Return what stands behind `$ ` in the chapter on HTTP, continued lines joined."""
    chapter = (
        DOCUMENT.read_text(encoding="utf-8").partition("## HTTP")[2].partition("## The end")[0]
    )
    joined = chapter.replace("\\\n", " ")
    return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]


def test_the_commands_for_http_do_what_the_document_says(tmp_path: Path) -> None:
    serve, listen, post = shown_commands()
    (tmp_path / "echo.py").write_text("async def echo(turn):\n    yield turn.text\n")
    (tmp_path / "token").write_text("correct-horse-battery\n")
    (tmp_path / "curl").write_text(CURL)
    (tmp_path / "curl").chmod(0o700)
    path = os.pathsep.join([str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "TOKEN": "correct-horse-battery", "HOME": str(tmp_path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        ["sh", "-c", f"exec {serve.replace('9000', '0')}"],
        cwd=tmp_path,
        env=env,
        stderr=pipe,
        text=True,
    ) as server:
        assert server.stderr is not None
        announced = server.stderr.readline()
        (port,) = set(re.findall(r"127\.0\.0\.1:(\d+)/", announced))
        listen, post = (each.replace("9000", port) for each in (listen, post))
        listening = ["sh", "-c", f"exec {listen.removesuffix('&').strip()}"]
        with subprocess.Popen(listening, env=env, stdout=pipe, text=True) as stream:
            assert stream.stdout is not None
            assert stream.stdout.readline().startswith("retry")
            subprocess.run(["sh", "-c", post], env=env, check=True)
            answer = next(line for line in stream.stdout if line.startswith("data: "))
            server.terminate()
            rest = stream.stdout.read()
    shown = DOCUMENT.read_text(encoding="utf-8").replace("9000", port)
    assert announced.strip() in shown
    assert '"protocolVersion":1' in answer
    assert ": disconnected by the server" in rest
    assert server.returncode == 0


def test_the_limits_in_the_document_are_those_of_the_code() -> None:
    from quarterdeck.agent import HttpOptions, turn  # noqa: PLC0415
    from quarterdeck.agent.http.client import PATIENCE_SECONDS  # noqa: PLC0415
    from quarterdeck.agent.http.serve import MAX_CONNECTIONS  # noqa: PLC0415

    text = re.sub(r"\s+", " ", DOCUMENT.read_text(encoding="utf-8"))
    options = HttpOptions()
    assert f"newest {options.limits.messages:,} messages" in text
    assert f"up to {options.limits.size // 1024 // 1024} MiB" in text
    assert f"gets {turn.CANCEL_SECONDS} seconds to end" in text
    assert (turn.LEFTOVER_SECONDS, PATIENCE_SECONDS) == (5, 5)
    assert "waits for it for five seconds at most" in text
    assert "for up to five seconds, once" in text
    room = f"{options.max_clients} clients, {options.max_sessions} open sessions for each"
    assert f"{room}, {MAX_CONNECTIONS} connections" in text
    assert f"a request has {options.head_seconds:g} seconds to arrive" in text
    size = options.max_body // 1024 // 1024
    assert f"body of up to {size} MiB has {options.body_seconds:g}." in text
    assert options.idle_seconds == 300
    assert "sends nothing for five minutes" in text

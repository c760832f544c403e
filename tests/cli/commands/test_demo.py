"""`quarterdeck demo`: a hub with an offline agent, which leaves nothing behind."""

import json
import re
import signal
import tempfile
import urllib.request
from pathlib import Path

import pytest

from tests.cli.kit import SECONDS, Console

pytestmark = pytest.mark.slow

CHOICES = "y allow once, a allow always, n reject, d details > "


@pytest.fixture
def console(tmp_path: Path) -> Console:
    return Console(tmp_path)


def left_behind() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("quarterdeck-demo-*"))


def test_without_a_terminal_the_demo_allows_requests_and_ends_by_itself(console: Console) -> None:
    done = console.run("demo", "--fast")
    assert done.returncode == 0, done.stderr
    assert "Quarterdeck is running at http://127.0.0.1:" in done.stdout
    assert "pair=" not in done.stdout
    assert "answered: allow once" in done.stderr
    assert "both tests pass." in " ".join(done.stdout.split())


def test_programs_get_the_events_and_the_result(console: Console) -> None:
    done = console.run("demo", "--fast", "--json")
    *events, result = map(json.loads, done.stdout.splitlines())
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert (result["type"], result["exitStatus"]) == ("result", 0)


def test_a_user_answers_with_a_key_and_the_hub_runs_until_ctrl_c(console: Console) -> None:
    with console.terminal("demo", "--fast") as terminal:
        terminal.wait_for(CHOICES)
        assert "/#pair=" in terminal.text
        terminal.type("y")
        terminal.wait_for("the hub keeps running; press Ctrl-C to stop it; its data is deleted")
        url = re.search(r"http://127\.0\.0\.1:\d+", terminal.text)
        assert url is not None
        with urllib.request.urlopen(f"{url[0]}/healthz", timeout=SECONDS) as answer:
            assert answer.status == 200
        folder = re.search(r"\$\(cat (\S+)/home/token\)", terminal.text.replace("\n", ""))
        assert folder is not None
        terminal.interrupt()
        assert terminal.end() == 130
    assert not Path(folder[1]).exists()


def test_ctrl_c_at_the_permission_prompt_ends_the_demo(console: Console) -> None:
    with console.terminal("demo", "--fast") as terminal:
        terminal.wait_for(CHOICES)
        terminal.interrupt()
        assert terminal.end() == 130
        assert "Traceback" not in terminal.text


def test_with_stay_another_device_can_answer(console: Console) -> None:
    with console.start("demo", "--fast", "--stay") as process:
        assert process.stdout is not None
        text = ""
        while "/api/permissions" not in text:
            text += process.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+", text)
        folder = re.search(r"\$\(cat (\S+)/token\)", text)
        assert url is not None
        assert folder is not None
        console.home = Path(folder[1])
        console.environ["QUARTERDECK_HOME"] = folder[1]
        sessions = console.json("sessions", "--state", "needs-you")["sessions"]
        while not sessions:
            sessions = console.json("sessions", "--state", "needs-you")["sessions"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 130

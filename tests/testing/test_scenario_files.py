import os
import subprocess
import sys
from pathlib import Path

import pytest

from quarterdeck.errors import ScenarioInvalid
from quarterdeck.testing import load_scenario, scenario_names, scripted_agent
from tests.testing.driving import driving

SMALL = '[[turns]]\nsteps = [{say = "from a file"}]\n'


@pytest.mark.parametrize("name", scenario_names())
def test_every_shipped_scenario_can_be_played_and_describes_itself(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.about
    assert scenario.turns


def test_what_the_demo_and_the_documents_speak_of_is_shipped() -> None:
    assert {"fix-a-bug", "crash", "stall", "garbage"} <= set(scenario_names())


def test_a_scenario_can_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    with driving(path) as agent:
        messages, _answer = agent.play()
    assert messages[0]["params"]["update"]["content"]["text"] == "from a file"


def test_a_relative_path_is_found_by_an_agent_that_starts_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small.toml").write_text(SMALL, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = scripted_agent("small.toml")
    done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0


def test_a_file_in_the_folder_it_starts_in_is_not_taken_for_a_module(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)\n", encoding="utf-8")
    done = subprocess.run(scripted_agent({}), cwd=tmp_path, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0


def test_a_bad_scenario_is_refused_before_a_process_is_started(tmp_path: Path) -> None:
    with pytest.raises(ScenarioInvalid, match=r"there is no such file; shipped are .*fix-a-bug"):
        scripted_agent(tmp_path / "none.toml")
    with pytest.raises(ScenarioInvalid, match="turn 1, step 1: no verb"):
        scripted_agent({"turns": [{"steps": [{"sing": "x"}]}]})


def test_what_can_be_read_only_once_is_refused_without_waiting_for_a_writer(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "x.toml")
    for source in (tmp_path / "x.toml", tmp_path):
        with pytest.raises(ScenarioInvalid, match="not a regular file; copy it into one"):
            scripted_agent(source)


def test_a_name_with_a_nul_is_refused() -> None:
    with pytest.raises(ScenarioInvalid, match="embedded null"):
        load_scenario("a\0b")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff")
    with pytest.raises(ScenarioInvalid, match="is it a text file"):
        load_scenario(tmp_path / "x.toml")


def test_the_agent_imports_nothing_that_is_slow() -> None:
    code = "import sys, quarterdeck.testing.agent; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    slow = {"anyio", "argparse", "asyncio", "dataclasses", "inspect", "msgspec", "pathlib"}
    bare = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    # Coverage, where it runs, has imported some of them before.
    assert not (set(done.stdout.split()) - set(bare.stdout.split())) & slow

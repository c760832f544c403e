"""Symbolic links: a request is judged by what its paths lead to, too."""

from __future__ import annotations

from pathlib import Path

from quarterdeck.host.requests.requested_call import MOST, links_of
from quarterdeck.policy import Call, Policy, Rule, decide

SOURCES = Policy(
    rule=(Rule(decision="allow", reads=("**",), writes=("**",), commands=("ls*", "echo*")),)
)


def decided(call: Call, workspace: Path) -> str:
    linked = call.with_links(links_of(call.named_paths, str(workspace)))
    return decide(SOURCES, linked, workspace=str(workspace)).decision


def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a").write_text("")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("")
    (folder / "out").symlink_to(outside)
    (folder / "file").symlink_to(outside / "secret")
    (folder / "inside").symlink_to(folder / "src")
    (folder / "loop").symlink_to(folder / "loop")
    return folder


def test_a_link_out_of_the_project_is_outside(tmp_path: Path) -> None:
    folder = project(tmp_path)
    assert decided(Call("Read", {"path": "src/a"}), folder) == "allow"
    assert decided(Call("Read", {"path": "src/new"}), folder) == "allow"
    assert decided(Call("Read", {"path": "inside/a"}), folder) == "allow"
    for path in ("out/secret", "out", "file", f"{folder}/out/new", "inside/../../outside/x"):
        assert decided(Call("Read", {"path": path}), folder) == "ask", path
        assert decided(Call("Write", {"path": path, "content": "x"}), folder) == "ask", path


def test_a_path_through_a_link_and_back_is_where_it_really_is(tmp_path: Path) -> None:
    folder = project(tmp_path)
    assert decided(Call("Read", {"path": "src/../src/a"}), folder) == "allow"
    assert decided(Call("Read", {"path": "out/../src/a"}), folder) == "ask"


def test_a_folder_and_a_redirection_of_a_command_are_followed(tmp_path: Path) -> None:
    folder = project(tmp_path)
    assert decided(Call("Bash", {"command": "ls", "cwd": "src"}), folder) == "allow"
    assert decided(Call("Bash", {"command": "ls", "cwd": "out"}), folder) == "ask"
    assert decided(Call("Bash", {"command": "echo x > src/b"}), folder) == "allow"
    assert decided(Call("Bash", {"command": "echo x > out/b"}), folder) == "ask"
    assert decided(Call("Bash", {"command": "echo x > b", "cwd": "out"}), folder) == "ask"


def test_a_workspace_behind_a_link_is_no_link_out_of_it(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (tmp_path / "alias").symlink_to(folder)
    alias = tmp_path / "alias"
    assert decided(Call("Read", {"path": "src/a"}), alias) == "allow"
    assert decided(Call("Read", {"path": f"{alias}/src/a"}), alias) == "allow"
    assert decided(Call("Read", {"path": "out/secret"}), alias) == "ask"


def test_what_cannot_be_resolved_is_outside(tmp_path: Path) -> None:
    folder = project(tmp_path)
    assert decided(Call("Read", {"path": "a\0b"}), folder) == "ask"
    assert links_of(["\ud83d"], str(folder)) in ({}, {"\ud83d": "/"})
    many = [f"src/{number}" for number in range(MOST + 1)]
    assert links_of(many, str(folder)) == {many[-1]: "/"}

"""Files of a session's folders over HTTP."""

from __future__ import annotations

from pathlib import Path

import anyio

from quarterdeck.runner.workspaces import best_matches
from tests.hub.api.kit import options, running


def _project(place: Path) -> Path:
    for name in ("src/client.py", "src/net/clock.py", ".hidden/key", "node_modules/x/client.js"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).touch()
    (place / "out").symlink_to(place.parent)
    (place.parent / "client-secret").touch()
    return place


async def test_files_are_found_by_letters_of_their_names(tmp_path: Path) -> None:
    place = _project(tmp_path / "place")
    async with running(options(tmp_path / "home")) as (_hub, client):
        session = await client.session("demo", place)
        at = f"/api/sessions/{session}/files"
        every = await client.get(at)
        found = await client.get(f"{at}?query=CLI")
        scattered = await client.get(f"{at}?query=ntck")
        await client.get(f"{at}?query={'x' * 201}", status=400)
        await client.get("/api/sessions/other/files", status=404)
    # Neither hidden nor installed ones, and nothing beyond a link that leads out.
    assert [each["name"] for each in every["files"]] == ["src/client.py", "src/net/clock.py"]
    assert found["files"] == [{"name": "src/client.py", "uri": (place / "src/client.py").as_uri()}]
    assert [each["name"] for each in scattered["files"]] == ["src/net/clock.py"]


async def test_what_git_ignores_is_left_out_and_no_program_of_the_repository_runs(
    tmp_path: Path,
) -> None:
    place = _project(tmp_path / "place")
    (place / ".gitignore").write_text("net/\nnode_modules/\nout\n")
    (place / "gone.py").touch()
    proof = tmp_path / "ran"
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {proof}\n")
    trap.chmod(0o755)
    for command in (
        ("init", "-q"),
        ("config", "core.fsmonitor", str(trap)),
        ("-c", "core.fsmonitor=false", "add", "gone.py"),
    ):
        await anyio.run_process(["git", *command], cwd=place)
    (place / "gone.py").unlink()
    async with running(options(tmp_path / "home")) as (_hub, client):
        session = await client.session("demo", place)
        every = await client.get(f"/api/sessions/{session}/files")
    names = [each["name"] for each in every["files"]]
    assert names == [".gitignore", ".hidden/key", "src/client.py"]
    assert not proof.exists()


async def test_what_is_missing_in_a_repository_is_not_fetched_by_its_own_program(
    tmp_path: Path,
) -> None:
    place, proof, trap = tmp_path / "place", tmp_path / "ran", tmp_path / "trap.sh"
    place.mkdir()
    trap.write_text(f"#!/bin/sh\ntouch {proof}\n")
    trap.chmod(0o755)
    (place / ".gitignore").write_text("x\n")
    (place / "new.py").touch()

    async def git(*words: str) -> str:
        done = await anyio.run_process(["git", *words], cwd=place)
        return done.stdout.decode().strip()

    await git("init", "-q")
    await git("add", ".gitignore")
    blob = await git("rev-parse", ":.gitignore")
    await git("update-index", "--skip-worktree", ".gitignore")
    (place / ".gitignore").unlink()
    (place / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for name, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", str(tmp_path)),
        ("remote.origin.promisor", "true"),
        ("remote.origin.uploadpack", str(trap)),
        ("protocol.allow", "always"),
        ("protocol.file.allow", "always"),
    ):
        await git("config", name, value)
    async with running(options(tmp_path / "home")) as (_hub, client):
        session = await client.session("demo", place)
        found = await client.get(f"/api/sessions/{session}/files")
    assert [each["name"] for each in found["files"]] == ["new.py"]
    assert not proof.exists()


async def test_nothing_that_a_repository_lacks_is_fetched_by_a_program_of_its_own(
    tmp_path: Path,
) -> None:
    place, proof = _project(tmp_path / "place"), tmp_path / "ran"
    me = ("-c", "user.name=me", "-c", "user.email=me@example.com")
    for command in (
        ("init", "-q"),
        ("add", "src"),
        (*me, "commit", "-q", "-m", "all"),
        ("sparse-checkout", "init", "--cone", "--sparse-index"),
        ("config", "core.repositoryFormatVersion", "1"),
        ("config", "extensions.partialClone", "origin"),
        ("config", "remote.origin.promisor", "true"),
        ("config", "remote.origin.url", "ssh://nowhere.example/x"),
        ("config", "core.sshCommand", f"touch {proof}; false"),
    ):
        await anyio.run_process(["git", *command], cwd=place)
    tree = (await anyio.run_process(["git", "rev-parse", "HEAD:src"], cwd=place)).stdout.decode()
    (place / ".git/objects" / tree[:2] / tree[2:].strip()).unlink()
    async with running(options(tmp_path / "home")) as (_hub, client):
        session = await client.session("demo", place)
        await client.get(f"/api/sessions/{session}/files")
    assert not proof.exists()


def test_the_name_of_a_file_counts_more_than_its_folders() -> None:
    names = ["client/other.py", "src/a_client.py", "src/client.py", "c/l/i/e/n/x", "x"]
    assert best_matches(names, "client", 9) == [
        "src/client.py",
        "src/a_client.py",
        "client/other.py",
    ]
    assert best_matches(names, "clt", 2) == ["src/client.py", "client/other.py"]

"""Folders of the hub's computer over HTTP."""

from __future__ import annotations

from pathlib import Path

from tests.hub.api.kit import options, running


async def test_folders_are_listed_without_files_and_hidden_ones(tmp_path: Path) -> None:
    place = tmp_path / "place"
    for name in ("beta", "Alpha", ".hidden", "project/.git"):
        (place / name).mkdir(parents=True)
    (place / "file.txt").touch()
    (place / "dangling").symlink_to(place / "nowhere")
    async with running(options(tmp_path / "home")) as (_hub, client):
        found = await client.get(f"/api/folders?path={place}")
        session = await client.session("demo", place / "beta")
        again = await client.get(f"/api/folders?path={place}")
        await client.get(f"/api/folders?path={place}/nowhere", status=404)
        await client.get(f"/api/folders?path={place}/file.txt", status=404)
        await client.get("/api/folders?path=relative", status=400)
        default = await client.get("/api/folders")
    assert [(each["name"], each["isProject"]) for each in found["folders"]] == [
        ("Alpha", False),
        ("beta", False),
        ("project", True),
    ]
    assert found["parent"] == str(tmp_path)
    assert found["recent"] == []
    assert session
    assert again["recent"] == [str(place / "beta")]
    assert default["path"] == str(Path.home())

"""The token file of earlier versions, and files that only their owner may use."""

import os
import stat
from pathlib import Path

import pytest

from quarterdeck.errors import StartRefused
from quarterdeck.hub.auth.device_keys import hub_key
from quarterdeck.hub.auth.tokens import TOKEN, make_token, redacted, remove_owner_token
from quarterdeck.machine.private_files import open_private, private_folder


def test_a_key_is_created_once_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "identity.key"
    key = hub_key(path).public
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert hub_key(path).public == key
    path.unlink()
    assert hub_key(path).public != key


def test_the_owners_token_of_an_earlier_version_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    remove_owner_token(path)
    (tmp_path / "elsewhere").write_text("kept")
    path.symlink_to(tmp_path / "elsewhere")
    remove_owner_token(path)
    path.write_text(make_token())
    remove_owner_token(path)
    assert [each.name for each in tmp_path.iterdir()] == ["elsewhere"]
    path.mkdir()
    with pytest.raises(StartRefused, match=r"cannot remove .*remove it: rm"):
        remove_owner_token(path)


def test_a_token_is_long_and_random() -> None:
    tokens = {make_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(TOKEN.fullmatch(token) for token in tokens)


def test_a_key_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        hub_key(tmp_path / "identity.key")
        open_private(tmp_path / "hub.db")
        private_folder(tmp_path / "home")
    finally:
        os.umask(before)
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()}
    assert modes == {"identity.key": 0o600, "hub.db": 0o600, "home": 0o700}


@pytest.mark.parametrize("use", [hub_key, open_private])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602, 0o660, 0o604])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, use: object, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text(make_token())
    path.chmod(mode)
    with pytest.raises(StartRefused, match=rf"other users can read or change .*mode {mode:04o}"):
        use(path)  # type: ignore[operator]  # one of two functions


@pytest.mark.parametrize("use", [hub_key, open_private])
def test_a_link_is_refused_whatever_it_points_to(tmp_path: Path, use: object) -> None:
    good = tmp_path / "elsewhere"
    hub_key(good)
    for target in (good, tmp_path / "nothing"):
        path = tmp_path / "token"
        path.symlink_to(target)
        with pytest.raises(StartRefused, match="is a symbolic link"):
            use(path)  # type: ignore[operator]  # one of two functions
        path.unlink()
    assert not (tmp_path / "nothing").exists()


def test_a_hard_link_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    hub_key(path)
    os.link(path, tmp_path / "other")
    with pytest.raises(StartRefused, match="has a second hard link"):
        hub_key(path)


def test_a_folder_or_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    for name in ("pipe", "folder"):
        with pytest.raises(StartRefused):
            hub_key(tmp_path / name)


@pytest.mark.parametrize("text", ["", "hunter2\n", "qd_" + "x" * 42, "qd_" + "x" * 44])
def test_a_file_without_a_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(StartRefused, match="remove it"):
        hub_key(path)


def test_a_foreign_owner_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("token", "home"):
        (tmp_path / name).touch(mode=0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    (tmp_path / "token").write_text(make_token())
    if os.geteuid() == 0:
        os.chown(tmp_path / "token", 1, 1)
        os.chown(tmp_path / "folder", 1, 1)
    else:  # only root can give files away: pretend to be another user
        another_user = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: another_user)
    with pytest.raises(StartRefused, match="belongs to another user"):
        hub_key(tmp_path / "token")
    with pytest.raises(StartRefused, match="belongs to another user"):
        private_folder(tmp_path / "folder")


def test_a_folder_that_others_can_read_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    folder.chmod(0o750)
    with pytest.raises(StartRefused, match="chmod 700"):
        private_folder(folder)
    folder.chmod(0o700)
    assert private_folder(folder) == folder


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartRefused, match=r"cannot use .*check the disk"):
        private_folder(tmp_path / "file" / "home")


def test_tokens_and_pairing_codes_are_removed_from_text() -> None:
    token = make_token()
    text = f"GET /?token={token} and http://127.0.0.1:1/#pair=abc-DEF_1 end"
    assert redacted(text) == "GET /?token=[token] and http://127.0.0.1:1/#pair=[code] end"

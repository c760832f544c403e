"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from quarterdeck.errors import CommandFailed


@contextmanager
def whole_file(path: Path, *, replaces: bool) -> Iterator[BinaryIO]:
    """Write a private file that appears at `path` when the block ends, and not if it fails.

    Raises:
        CommandFailed: if there is one already, unless it is to be replaced.
    """
    if not replaces and (path.exists() or path.is_symlink()):
        raise _is_there(path)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if replaces:
            Path(partial).replace(path)
            return
        try:
            os.link(partial, path)  # unlike a rename, it fails if somebody was faster
        except FileExistsError as error:
            raise _is_there(path) from error
        Path(partial).unlink()
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _is_there(path: Path) -> CommandFailed:
    return CommandFailed(f"{path} is there already; name another file, or replace it with --force")

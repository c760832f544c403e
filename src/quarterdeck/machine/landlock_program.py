"""The part of the guard that confines by Landlock alone; `confine_program` loads it for that.

For machines that permit no mount namespace. The same rules hold: standard library only, and as
little of it as possible. Options:

    landlock=scopes  processes outside cannot be traced, inspected or, from ABI 6 on, signalled
    landlock=files   the same, and the files in hidden folders cannot be opened

Landlock cannot take a folder away. It allows what is listed, with everything below it. So whatever
lies next to a hidden folder, and next to each folder above it, is listed; a folder above itself is
not, for its list would hold for the hidden one, too. What follows, and `confinement` says:

- Nothing can be created, renamed or removed directly in the folders above; what is created
  there later cannot be opened.
- The folders above can be listed, and so the hidden ones; what is in their files is closed.
- Sockets are no files to Landlock: a command can connect to those it can name.
- Mounts are forbidden.

Rights of root that go around Landlock are given up: to open files by handle, to read the memory of
others, to create devices, and what includes these.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from quarterdeck.machine import confine_program as base
else:
    base = __import__("confine_program")

_SET_NO_NEW_PRIVILEGES, _DROP_CAPABILITY = 38, 24
_CAPABILITIES_3 = 0x20080522  # the version of the kernel's structures: two words of 32 bits
# DAC_READ_SEARCH, SYS_MODULE, SYS_RAWIO, SYS_PTRACE, SYS_ADMIN, SYS_RESOURCE (which could raise the
# limit that marks a guard's processes), MKNOD, MAC_OVERRIDE, MAC_ADMIN, PERFMON, BPF,
# CHECKPOINT_RESTORE
_DROPPED = (2, 16, 17, 19, 21, 24, 27, 32, 33, 38, 39, 40)
_ADD_RULE = 445  # the same on all architectures
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_NEWER_RIGHTS = ((2, 1 << 13), (3, _TRUNCATE), (5, _IOCTL))  # and the ABI that knows each
_FIRST_RIGHTS = (1 << 13) - 1
_NETWORK_SINCE = 4


def restrict(options: dict[str, list[str]]) -> None:
    """Restrict this process and what it will execute.

    Raises:
        OSError: if the kernel cannot do it.
    """
    is_strict = "abstract" in options.get("scope", [])
    if os.geteuid() == 0:
        _drop_capabilities()
    if base.libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise base.failure("cannot give up privileges")
    if options["landlock"] == ["scopes"]:
        base.keep_signals_inside(is_strict=is_strict)
        return
    abi = base.landlock_version()
    rights = _FIRST_RIGHTS
    for since, right in _NEWER_RIGHTS:
        rights |= right if abi >= since else 0
    scopes = base.scopes(abi, is_strict=is_strict)
    fields = 3 if abi >= base.SCOPES_SINCE else 2 if abi >= _NETWORK_SINCE else 1
    ruleset = base.create_ruleset([rights, 0, scopes][:fields])
    try:
        for path, allowed in _rules(options, rights):
            _allow(ruleset, path, allowed)
        base.enforce(ruleset)
    finally:
        os.close(ruleset)


def _drop_capabilities() -> None:
    for number in _DROPPED:
        # It fails for one that the kernel does not know, and without the right: then none is held.
        base.libc.prctl(_DROP_CAPABILITY, number, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
    words = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice
    if base.libc.capget(header, words):
        raise base.failure("cannot read the capabilities")
    for number in _DROPPED:
        for kind in range(3):
            words[number // 32 * 3 + kind] &= ~(1 << number % 32)
    if base.libc.capset(header, words):
        raise base.failure("cannot drop capabilities")


def _rules(options: dict[str, list[str]], rights: int) -> Iterator[tuple[str, int]]:
    """Yield paths and what is allowed beneath each of them."""
    locked = options.get("lock", [])
    closed = {*options.get("hide", []), *locked}
    above = {folder for path in closed for folder in _folders_above(path)}
    yield "/", _READ_DIR & rights
    for folder in above:
        try:
            names = os.listdir(folder)  # noqa: PTH208 - as in `confine_program`
        except OSError:
            continue  # what cannot be listed cannot be allowed
        for name in names:
            path = f"{folder.rstrip('/')}/{name}"
            if path not in above and path not in closed:
                yield path, rights
    for path in locked:
        yield path, _READING & rights
    for path in options.get("keep", []):
        yield path, _READING & rights if base.is_folder(path) else _READ_FILE
    for path in options.get("open", []):
        yield path, rights
    for path in options.get("free", []):
        yield path, rights


def _folders_above(path: str) -> Iterator[str]:
    folder = path
    while folder != "/":
        folder = folder.rpartition("/")[0] or "/"
        yield folder


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # gone meanwhile, or not there
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISLNK(mode):
            return  # what it leads to is allowed, or not, where it is
        if not stat.S_ISDIR(mode):
            rights &= _FILE_RIGHTS
        rule = rights.to_bytes(8, sys.byteorder) + fd.to_bytes(4, sys.byteorder)
        attributes = ctypes.create_string_buffer(rule, len(rule))
        base.system_call(_ADD_RULE, ruleset, _PATH_BENEATH, attributes, 0)
    finally:
        os.close(fd)

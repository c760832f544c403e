"""Python as on macOS: `sh` calls it with the words of a `python` command line.

run.py EXECUTABLE [-I] [-S] [-c CODE | -m MODULE | FILE] [WORD ...]
"""

from __future__ import annotations

import sys


def main() -> None:
    executable, *words = sys.argv[1:]
    folder = __file__.rpartition("/")[0]
    sys.path[:] = [path for path in sys.path if path != folder]
    sys.path.insert(0, folder)
    import macos_platform  # type: ignore[import-not-found] # noqa: PLC0415 - next to this file

    macos_platform.install(executable)
    sys.path.remove(folder)
    while words and words[0].startswith("-") and words[0] not in ("-c", "-m"):
        words.pop(0)
    kind, rest = (words[0], words[1:]) if words[:1] in (["-c"], ["-m"]) else ("", words)
    run(kind, rest)


def run(kind: str, words: list[str]) -> None:
    if kind == "-c":
        sys.argv = ["-c", *words[1:]]
        sys.path.insert(0, "")
        exec(words[0], {"__name__": "__main__"})
        return
    import runpy  # noqa: PLC0415 - after the platform

    sys.argv = list(words)
    if kind == "-m":
        sys.path.insert(0, "")
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()

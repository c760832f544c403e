"""The scripted agent, which also writes every line that its host sends to a named pipe.

python -P recording_agent.py WIRE [ARGUMENT ...]    the arguments are those of the scripted agent
"""

import os
import sys
import threading

from quarterdeck.testing.agent import main

STDIN = 0


def _copy(source: int, agent: int, wire: int) -> None:
    """Hand the input on line by line; a line is on the wire before the agent can act on it."""
    rest = b""
    while data := os.read(source, 65536):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            os.write(wire, line + b"\n")
            os.write(agent, line + b"\n")
    os.close(agent)


def _record(wire: int) -> None:
    source = os.dup(STDIN)
    read_end, write_end = os.pipe()
    os.dup2(read_end, STDIN)
    os.close(read_end)
    threading.Thread(target=_copy, args=(source, write_end, wire), daemon=True).start()


if __name__ == "__main__":
    _record(os.open(sys.argv[1], os.O_WRONLY))
    sys.exit(main(sys.argv[2:]))

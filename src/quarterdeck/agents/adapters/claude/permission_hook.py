"""The command that Claude Code runs for a permission request; a script of its own.

    python -I permission_hook.py SOCKET

It passes the request to the runner that listens on SOCKET and prints the answer. Whatever goes
wrong, it prints nothing and ends with 0: then the person answers in the terminal, as without it.
The runner may be restarted while a request waits, so a lost connection is tried again for a while.
Only the standard library, and no import of this package: it has to start quickly.
"""

import json
import socket
import sys
import time

CONNECT_SECONDS = 1.0
RETRY_SECONDS = 20.0
PAUSE_SECONDS = 0.5
MOST_BYTES = 1 << 20


def ask(path: str, request: bytes) -> "tuple[bool, str]":
    """Return whether the runner has decided about the request, and what to print."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(path)
        connection.sendall(request)
        connection.settimeout(None)  # a person may take hours; Claude Code ends this process
        answer = b""
        while not answer.endswith(b"\n") and len(answer) < MOST_BYTES:
            data = connection.recv(65536)
            if not data:
                return False, ""
            answer += data
    output = json.loads(answer).get("output")
    return True, "" if output is None else json.dumps(output)


def main() -> None:
    try:
        hook = json.load(sys.stdin)
        request = json.dumps({"program": "claude", "hook": hook}).encode() + b"\n"
        deadline = 0.0
        while True:
            try:
                is_decided, output = ask(sys.argv[1], request)
                if is_decided:
                    sys.stdout.write(output)
                    return
                deadline = deadline or time.monotonic() + RETRY_SECONDS
            except OSError:
                pass  # not there, or not yet again
            if time.monotonic() >= deadline:
                return
            time.sleep(PAUSE_SECONDS)
    except Exception:  # noqa: BLE001 - nothing of this is the user's concern
        return


if __name__ == "__main__":
    main()

"""A peer that follows a script, byte for byte. Standard library only: `python -I -S` runs it.

    peer.py STEPS    play STEPS (a JSON array), then serve requests until standard input ends

A request `do` carries more steps, played before it is answered with what they found out; `echo` is
answered with its own params, `heard` with every line that arrived since the last `heard`. All other
requests wait for a step that answers them. Steps, each an array of its name and its arguments:

    write TEXT          to standard output; $ID is the id of the request being played or last read
    hex DIGITS          the same for bytes that are no text
    flood COUNT TEXT    write TEXT that often, $N counting from 0
    repeat SIZE TEXT END    write TEXT until SIZE bytes are out, then END
    complain TEXT COUNT     write TEXT to standard error that often; "hex:..." for bytes
    mirror TEXT         read until TEXT has arrived, then notify `mirrored` with all that was read
    answer RESULT       answer this `do` now, not at its end
    unanswered          do not answer this `do` at all
    close FD | exit STATUS | die SIGNAL | hang | ignore SIGNAL
    leave-child HOW PATH    fork a child that keeps the pipes, "in the group" or "in its own
                        session", and the FIFO at PATH open for writing; the answer is its pid
"""

import json
import os
import signal
import sys

CHUNK = 1 << 16


class Peer:
    def __init__(self) -> None:
        self.rest = b""
        self.heard: list[str] = []
        self.id = "null"
        self.answers = True
        self.found: object = None

    def read_line(self) -> bytes | None:
        while b"\n" not in self.rest:
            data = os.read(0, CHUNK)
            if not data:
                return None
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        self.heard.append(line.decode("utf-8", "backslashreplace"))
        return line

    def write(self, text: str | bytes, fd: int = 1) -> None:
        data = text if isinstance(text, bytes) else text.replace("$ID", self.id).encode()
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def play(self, steps: list[list[object]]) -> None:
        for name, *arguments in steps:
            getattr(self, "do_" + str(name).replace("-", "_"))(*arguments)

    def serve(self) -> None:
        while (line := self.read_line()) is not None:
            message = json.loads(line)
            if "id" not in message or "method" not in message:
                continue
            self.id = json.dumps(message["id"])
            method, params = message["method"], message["params"]
            if method == "heard":
                self.answer(self.heard[:-1])
                self.heard.clear()
            elif method == "echo":
                self.answer(params)
            elif method == "do":
                self.answers, self.found = True, None
                self.play(params["steps"])
                if self.answers:
                    self.answer(self.found)

    def answer(self, result: object) -> None:
        self.write('{"jsonrpc":"2.0","id":$ID,"result":' + json.dumps(result) + "}\n")

    def do_write(self, text: str) -> None:
        self.write(text)

    def do_hex(self, digits: str) -> None:
        self.write(bytes.fromhex(digits))

    def do_flood(self, count: int, text: str) -> None:
        for start in range(0, count, 100):
            numbers = range(start, min(start + 100, count))
            self.write("".join(text.replace("$N", str(number)) for number in numbers))

    def do_repeat(self, size: int, text: str, end: str) -> None:
        piece = text.encode() * (CHUNK // len(text))
        for _ in range(size // len(piece)):
            self.write(piece)
        self.write(piece[: size % len(piece)])
        self.write(end)

    def do_complain(self, text: str, count: int = 1) -> None:
        data = bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()
        together = max(1, CHUNK // len(data))
        for _ in range(count // together):
            self.write(data * together, 2)
        self.write(data * (count % together), 2)

    def do_mirror(self, text: str) -> None:
        while text.encode() not in self.rest:
            self.rest += os.read(0, CHUNK)
        params = {"text": self.rest.decode()}
        self.rest = b""
        self.write(json.dumps({"method": "mirrored", "params": params}) + "\n")

    def do_answer(self, result: object) -> None:
        self.answer(result)
        self.answers = False

    def do_unanswered(self) -> None:
        self.answers = False

    def do_close(self, fd: int) -> None:
        os.close(fd)

    def do_exit(self, status: int) -> None:
        os._exit(status)

    def do_die(self, name: str) -> None:
        os.kill(os.getpid(), signal.Signals[name])

    def do_hang(self) -> None:
        while True:
            signal.pause()

    def do_ignore(self, name: str) -> None:
        signal.signal(signal.Signals[name], signal.SIG_IGN)

    def do_leave_child(self, how: str, path: str) -> None:
        child = os.fork()
        if child == 0:
            if how == "in its own session":
                os.setsid()
            os.open(path, os.O_WRONLY)
            self.do_hang()
        self.found = child


if __name__ == "__main__":
    sys.set_int_max_str_digits(0)
    peer = Peer()
    peer.play(json.loads(sys.argv[1]))
    peer.serve()

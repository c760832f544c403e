"""Record the moving picture of the README: `moving_picture.py docs/images/session.webp`.

Nothing in it is staged but the frame around it. A real hub runs the scripted demo agent, a terminal
runs `quarterdeck run`, and a paired browser of a phone's size approves the edit. Recording takes a
screenshot of the phone and the length of the terminal's output several times a second; composing
draws both side by side in Chromium and encodes the frames as an animated WebP.
"""

from __future__ import annotations

import argparse
import base64
import fcntl
import html
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from quarterdeck.testing import scripted_agent  # noqa: E402 - found by the path above
from tests.page.browsing import FLAGS, MISSING, chromium  # noqa: E402
from tests.page.hubs import HubProcess  # noqa: E402

PROMPT: Final = "The basket forgets the last discount"
COLUMNS, ROWS = 74, 33
PHONE: Final = {"width": 390, "height": 780}
STAGE: Final = {"width": 1000, "height": 620}
FRAME_SECONDS: Final = 0.2
LAST_FRAME_SECONDS: Final = 3.0
LONGEST_FRAME_SECONDS: Final = 1.2
SECONDS_TO_READ: Final = 2.5  # between the permission request and the tap that answers it

STYLE: Final = """
body { margin: 0; width: 1000px; height: 620px; background: #1d2733; display: flex;
       align-items: center; justify-content: space-between; padding: 0 28px;
       box-sizing: border-box }
#window { width: 624px; height: 564px; background: #10151c; border-radius: 10px;
          box-shadow: 0 8px 28px #0008; overflow: hidden; display: flex; flex-direction: column }
#bar { height: 26px; background: #2a3440; flex: none }
#screen { flex: 1; overflow: hidden; display: flex; flex-direction: column;
          justify-content: flex-end; padding: 8px 14px }
#screen.short { justify-content: flex-start }
pre { margin: 0; color: #d7dee6; font: 13px/16px "DejaVu Sans Mono", monospace; white-space: pre }
#phone { position: relative; width: 276px; height: 552px; border: 7px solid #05080c;
         border-radius: 30px; overflow: hidden; box-shadow: 0 8px 28px #0008; background: #05080c }
#phone img { width: 276px; display: block }
#tap { position: absolute; width: 38px; height: 38px; margin: -19px 0 0 -19px; display: none;
       border-radius: 50%; background: #4a90e255; border: 2px solid #4a90e2 }
.b { font-weight: bold; color: #fff } .d { color: #8794a3 } .c31 { color: #ff7b72 }
.c32 { color: #7ee787 } .c33 { color: #e3b341 } .c36 { color: #79c0ff }
"""
BODY: Final = (
    f"<style>{STYLE}</style><div id=window><div id=bar></div><div id=screen><pre></pre></div></div>"
    "<div id=phone><img><div id=tap></div></div>"
)
DRAW: Final = """([text, lines, picture, tap]) => {
    document.querySelector('pre').innerHTML = text
    document.querySelector('#screen').className = lines < 33 ? 'short' : ''
    const ring = document.querySelector('#tap')
    ring.style.display = tap ? 'block' : 'none'
    if (tap) { ring.style.left = tap[0] + 'px'; ring.style.top = tap[1] + 'px' }
    const image = document.querySelector('img')
    image.src = picture
    return image.decode()
}"""


@dataclass
class Terminal:
    """A process in a pseudo-terminal, and everything that it has written."""

    command: list[str]
    folder: Path
    variables: dict[str, str]
    output: bytearray = field(default_factory=bytearray)

    def start(self) -> None:
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            self.command,
            cwd=self.folder,
            env={**os.environ, **self.variables, "TERM": "xterm-256color"},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)
        threading.Thread(target=self._read, args=(ours,), daemon=True).start()

    def _read(self, descriptor: int) -> None:
        while True:
            try:
                piece = os.read(descriptor, 65_536)
            except OSError:  # Linux reports the end of a pseudo-terminal as EIO
                return
            self.output += piece

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None


@dataclass(frozen=True)
class Frame:
    at: float
    phone: bytes
    written: int
    tap: tuple[float, float] | None = None


class Recording:
    """Frames of a page and a terminal, taken at the same moments."""

    def __init__(self, page: Page, terminal: Terminal) -> None:
        self._page = page
        self._terminal = terminal
        self.frames: list[Frame] = []

    def take(self, tap: tuple[float, float] | None = None) -> None:
        at, written = time.monotonic(), len(self._terminal.output)
        self.frames.append(Frame(at, self._page.screenshot(type="png"), written, tap))
        self._page.wait_for_timeout(max(0.0, at + FRAME_SECONDS - time.monotonic()) * 1000)

    def take_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.take()


@contextmanager
def running_hub(folder: Path) -> Iterator[HubProcess]:
    home = folder / "home"
    home.mkdir(mode=0o700)
    hub = HubProcess(home, {"demo": scripted_agent("fix-a-bug", pace=1.6)})
    hub.start()
    try:
        yield hub
    finally:
        hub.stop()


def phone_page(browser: Browser, hub: HubProcess) -> Page:
    """Open the hub's page on a paired device that may approve."""
    context = browser.new_context(
        viewport={"width": PHONE["width"], "height": PHONE["height"]},
        color_scheme="light",
        is_mobile=True,
        has_touch=True,
        device_scale_factor=1.5,
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.goto(hub.link("approve"))
    page.get_by_role("textbox").first.fill("My phone")
    page.get_by_role("button", name="Pair this device").click()
    page.wait_for_url("**/#/")
    return page


def record(browser: Browser, hub: HubProcess, folder: Path) -> tuple[list[Frame], bytes]:
    """Run one session; return the frames and the terminal's output."""
    project = folder / "shop"
    project.mkdir()
    page = phone_page(browser, hub)
    terminal = Terminal(
        [sys.executable, "-m", "quarterdeck", "run", "demo", PROMPT],
        project,
        {"QUARTERDECK_HOME": str(hub.home)},
    )
    recording = Recording(page, terminal)
    recording.take_for(1.2)
    terminal.start()
    while not (sessions := hub.call("GET", "/api/sessions")["sessions"]):
        recording.take()
    recording.take_for(1.0)
    page.goto(f"{hub.url}/#/s/{sessions[0]['sessionId']}")
    allow = page.get_by_role("button", name="Allow once")
    while not allow.is_visible():
        recording.take()
    recording.take_for(SECONDS_TO_READ)
    box = allow.bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    recording.take(middle)
    recording.take(middle)
    allow.click()
    while not terminal.has_ended:
        recording.take()
    recording.take_for(1.5)
    return recording.frames, bytes(terminal.output)


def markup(output: bytes, folder: Path) -> str:
    """Turn terminal output (text, line breaks and colours; nothing else) into HTML."""
    command = f'\x1b[32m~/shop $\x1b[0m quarterdeck run demo "{PROMPT}"'
    written = output.decode("utf-8", "ignore").replace("\r\n", "\n")
    text = html.escape(f"{command}\n{written}").replace(f"{folder}/shop", "~/shop")
    text = re.sub(r"\x1b\[0m", "</span>", text)
    return re.sub(r"\x1b\[([\d;]+)m", lambda found: f"<span class='{_classes(found[1])}'>", text)


def _classes(codes: str) -> str:
    named = {"1": "b", "2": "d"}
    return " ".join(named.get(code, f"c{code}") for code in codes.split(";"))


def compose(
    browser: Browser, frames: list[Frame], output: bytes, folder: Path
) -> list[Image.Image]:
    """Draw terminal and phone side by side."""
    page = browser.new_page(viewport={"width": STAGE["width"], "height": STAGE["height"]})
    page.set_content(BODY)
    pictures = []
    for frame in frames:
        text = markup(output[: frame.written], folder)
        phone = "data:image/png;base64," + base64.b64encode(frame.phone).decode()
        scale = 276 / PHONE["width"]
        tap = frame.tap and [frame.tap[0] * scale, frame.tap[1] * scale]
        page.evaluate(DRAW, [text, text.count("\n"), phone, tap])
        pictures.append(Image.open(io.BytesIO(page.screenshot(type="png"))).convert("RGB"))
    return pictures


def save(pictures: list[Image.Image], frames: list[Frame], path: Path) -> None:
    """Write an animated WebP; frames that look the same become one."""
    shown: list[Image.Image] = []
    times: list[int] = []
    ends = [*(frame.at for frame in frames[1:]), frames[-1].at + LAST_FRAME_SECONDS]
    for picture, frame, end in zip(pictures, frames, ends, strict=True):
        lasts = round((end - frame.at) * 1000)
        if shown and shown[-1].tobytes() == picture.tobytes():
            times[-1] += lasts
        else:
            shown.append(picture)
            times.append(lasts)
    longest = [round(LONGEST_FRAME_SECONDS * 1000)] * (len(times) - 1) + [times[-1]]
    shown[0].save(
        path,
        save_all=True,
        append_images=shown[1:],
        duration=[min(pair) for pair in zip(times, longest, strict=True)],
        loop=0,
        quality=72,
        method=5,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="where the picture goes")
    path: Path = parser.parse_args().path
    program = chromium()
    if program is None:
        print(f"moving_picture: {MISSING}", file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="quarterdeck-") as name,
        running_hub(Path(name)) as hub,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        frames, output = record(browser, hub, Path(name))
        save(compose(browser, frames, output, Path(name)), frames, path)
        browser.close()
    print(f"{path}: {len(frames)} frames, {path.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How a pairing is shown: a link, and the link as a QR code for a terminal."""

from __future__ import annotations

from io import StringIO
from typing import Final

import segno

_QUIET: Final = 2  # modules around the code; four by the book, two are read by every phone


def pairing_link(origin: str, long_code: str) -> str:
    """Return the link that lets a browser in.

    The code is behind "#": browsers keep that part to themselves, so it is in no request, no log
    and no Referer; the page sends it as a body and takes it out of the address.
    """
    return f"{origin}/#pair={long_code}"


def qr_text(link: str) -> str:
    """Return the link as a QR code made of half blocks, two rows of it to a line.

    Light modules are drawn and dark ones left out: that is right on a dark terminal, and phones
    read the inverse that a light one shows.
    """
    rows = [bytes(row) for row in segno.make_qr(link, error="l").matrix_iter(border=_QUIET)]
    if len(rows) % 2:
        rows.append(bytes(len(rows[0])))
    text = StringIO()
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        line = (_HALVES[not top, not bottom] for top, bottom in zip(upper, lower, strict=True))
        text.write("".join(line) + "\n")
    return text.getvalue()


_HALVES: Final = {
    (True, True): "█",
    (True, False): "▀",
    (False, True): "▄",
    (False, False): " ",
}

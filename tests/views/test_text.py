"""Text of agents in a terminal: it controls nothing and hides nothing."""

import re

import pytest
from hypothesis import given, strategies as st

from quarterdeck.views.text import cells, one_line, plain, shortened, visible, wrapped

HOSTILE = {
    "clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "clipboard, ended by ST": "\x1b]52;c;cm0gLXJm\x1b\\",
    "clipboard, 8 bit": "\x9d52;c;cm0gLXJm\x9c",
    "link": "\x1b]8;;https://evil.example\x1b\\harmless\x1b]8;;\x1b\\",
    "title": "\x1b]0;root@host\x07",
    "title that is never ended": "\x1b]2;all that follows",
    "colour": "\x1b[31mred\x1b[0m",
    "colour, 8 bit": "\x9b31mred",
    "cursor up and erase": "\x1b[2A\x1b[2K",
    "clear": "\x1b[2J\x1b[H\x1bc",
    "answerback": "\x1b[c\x1b[6n\x05",
    "device control": '\x1bP$q"p\x1b\\',
    "program command": "\x1b_Gf=100;AAAA\x1b\\",
    "privacy message": "\x1b^hidden\x1b\\",
    "start of string": "\x1bXhidden\x1b\\",
    "alternate screen": "\x1b[?1049h",
    "bracketed paste": "\x1b[200~rm -rf /\n\x1b[201~",
    "mouse": "\x1b[?1000h",
    "half a sequence": "\x1b[",
    "charset": "\x1b(0lqqk",
    "carriage return": "rm -rf /\rls      ",
    "backspaces": "rm\b\bls",
    "bell, null, delete": "\x07\x00\x7f",
    "vertical tab, form feed": "\x0b\x0c",
    "next line": "\x85",
    "line separator": "a\u2028b\u2029c",
    "override": "user\u202etxt.exe",
    "embedding": "\u202a\u202b\u202c",
    "isolate": "\u2066\u2067\u2068\u2069",
    "lone surrogate": "\ud800 \udfff",
    "tags": "".join(chr(0xE0000 + ord(letter)) for letter in "hide"),
    "zero width": "a\u200bb\u200cc\u200dd\ufeffe\u2060f",
    "soft hyphen": "r\u00adm",
    "blank letters": "\u115f\u3164\uffa0\u2800",
    "odd spaces": "\u00a0\u2003\u3000",
}
CORPUS = pytest.mark.parametrize("sent", HOSTILE.values(), ids=HOSTILE.keys())
_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@CORPUS
def test_nothing_that_commands_a_terminal_passes(sent: str) -> None:
    for shown in (plain(sent), one_line(sent), visible(sent)):
        assert not _COMMANDS.search(shown)
        shown.encode()


@CORPUS
def test_the_text_for_a_decision_shows_every_character(sent: str) -> None:
    shown = visible(f"before{sent}after")
    assert shown.startswith("before")
    assert shown.endswith("after")
    for character in sent.replace("\t", "    "):
        assert character in shown or f"<U+{ord(character):04X}>" in shown


@pytest.mark.parametrize(
    "sent",
    ["\u200b", "\u00ad", "\ufeff", "\u2060", "\u3164", "\ufe0f", "\U000e0041", "\u00a0", "\x1b"],
)
def test_what_cannot_be_seen_is_spelled_out(sent: str) -> None:
    assert visible(sent) == f"<U+{ord(sent):04X}>"


def test_blanks_cannot_push_anything_out_of_sight() -> None:
    assert visible("ls" + " " * 10_000 + "; rm -rf /") == "ls <10000 blanks> ; rm -rf /"
    assert visible("ls" + "\n" * 10_000 + "rm -rf /") == "ls\n<9999 empty lines>\nrm -rf /"


def test_ordinary_words_stay_as_they_are() -> None:
    for words in ("def f(x):\n    return x", "Grüße, мир, 漢字, 👍", "a\n\nb"):
        assert plain(words) == visible(words) == words


@given(st.text(st.characters(codec=None)))
def test_any_text_can_be_shown_either_way(sent: str) -> None:
    for shown in (plain(sent), one_line(sent), visible(sent)):
        assert not _COMMANDS.search(shown)
        shown.encode()


@given(st.text(), st.integers(1, 40))
def test_wrapping_loses_no_word_and_fits(text: str, room: int) -> None:
    words = one_line(text)
    lines = list(wrapped(words, room))
    assert "".join("".join(lines).split()) == "".join(words.split())
    assert all(cells(line) <= max(room, 2) for line in lines)


@given(st.text(), st.integers(3, 40))
def test_what_is_shortened_fits(text: str, room: int) -> None:
    assert cells(shortened(one_line(text), room)) <= room


def test_wide_characters_take_two_columns() -> None:
    assert cells("漢字") == 4
    assert cells("e\u0301") == 1
    assert shortened("漢字漢字漢字", 7) == "漢字..."

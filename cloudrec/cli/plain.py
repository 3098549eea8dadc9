"""Text from elsewhere for a terminal: names, causes and log lines cannot move the cursor or set a title.

A terminal obeys control characters (ECMA-48), and shows text after a direction mark in another order
(Unicode TR 9; CVE-2021-42574). They are shown as Python writes them in a string.
"""

from __future__ import annotations

import re

# C0 and C1 without tab and line feed; marks and overrides of direction; halves of surrogate pairs.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_COLOUR = re.compile(
    "(\x1b\\[[0-9;]{0,20}m)"
)  # SGR, which changes the look of the text after it and nothing else
_RESET = "\x1b[0m"


def plain(text: str) -> str:
    """Return a text with each character that a terminal obeys as an escape; tabs and line feeds are kept."""
    return _UNSAFE.sub(_escaped, text)


def one_line(text: str) -> str:
    """Return a text on one line, so that a cause cannot look like another row of a table."""
    return " ".join(text.split()) if any(mark in text for mark in "\r\n\x0b\x0c\x85\u2028\u2029") else text


def coloured(line: str) -> str:
    """Return a line of a log with its colours, which end with the line; else as `plain`."""
    parts = _COLOUR.split(line)
    if len(parts) == 1:
        return plain(line)
    return "".join(part if place % 2 else plain(part) for place, part in enumerate(parts)) + _RESET


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number <= 0xFF else f"\\u{number:04x}"  # noqa: PLR2004 - one byte

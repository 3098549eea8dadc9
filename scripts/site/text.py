"""Lines of at most 100 characters for generated pages."""

from __future__ import annotations

import re
import textwrap

WIDTH = 99
_GLUE = "\0"


def wrapped(text: str, *, width: int = WIDTH, first: str = "", rest: str = "") -> str:
    """Return a paragraph in lines; code stays on one line, and no line begins as a list or a heading does."""
    glued = re.sub(
        r"(?<!`)`[^`]{1,70}`(?!`)", lambda code: code[0].replace(" ", _GLUE), " ".join(text.split())
    )
    glued = re.sub(r" ([-+*#>=]|\d+\.)(?= )", lambda mark: _GLUE + mark[1], glued)
    lines = textwrap.wrap(
        glued,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_GLUE, " ")


def bullet(text: str) -> str:
    """Return an entry of a list."""
    return wrapped(text, first="- ", rest="  ") + "\n"

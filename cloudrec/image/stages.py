"""Removes the stages of a Dockerfile that a target does not need.

BuildKit skips them by default; the buildah and podman of Debian 12 build every stage before the target.
"""

from __future__ import annotations

import re

_STAGE = re.compile(r"^FROM\s+(?P<base>\S+)\s+AS\s+(?P<name>\S+)\s*$", re.MULTILINE)
_COPIED = re.compile(r"^\s*(?:COPY|RUN)\s.*?--(?:from=|mount=\S*from=)([\w.-]+)", re.MULTILINE)


def needed(text: str, target: str) -> str:
    """Return the text of a Dockerfile with only the target's stage and the stages that it is made from."""
    starts = list(_STAGE.finditer(text))
    ends = [*(match.start() for match in starts[1:]), len(text)]
    stages = {match["name"]: text[match.start() : end] for match, end in zip(starts, ends, strict=True)}
    bases = {match["name"]: match["base"] for match in starts}
    kept: set[str] = set()
    waiting = [target]
    while waiting:
        name = waiting.pop()
        if name in stages and name not in kept:
            kept.add(name)
            waiting += [bases[name], *_COPIED.findall(stages[name])]
    return text[: starts[0].start()] + "".join(stages[name] for name in stages if name in kept)

"""Resource paths of Google Cloud, such as projects/P/regions/R/subnetworks/N."""

from __future__ import annotations

import re

_LEAST = 4  # words of a path: projects, its id, a collection and a name
_SHOWN = 80  # characters of a wrong link in a message
_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def path(link: str) -> str:
    """Return the path in a link: what follows the host and the version of the API, if there are any."""
    start = link.find("projects/")
    return link[start:] if start >= 0 else link


def known(link: str) -> str:
    """Return the path in the link of a described resource or operation; ValueError if it has none.

    A wrong one would be kept in the journal, and no later command could follow or delete it.
    """
    found = path(link)
    words = [word for place, word in enumerate(found.split("/")) if (place, word) != (2, "global")]
    if (
        not found.startswith("projects/")
        or len(words) < _LEAST
        or len(words) % 2
        or not all(words)
        or not found.isprintable()
    ):
        raise ValueError(f"Google describes a resource with the link {link[:_SHOWN]!r}")
    return found


def name(link: str) -> str:
    """Return the last part of a link or path."""
    return link.rpartition("/")[2]


def location(of: str) -> str:
    """Return the region or zone in a path; "global" if it has none."""
    words = path(of).split("/")
    return words[3] if len(words) > 3 and words[2] != "global" else "global"  # noqa: PLR2004 - after projects/P/x


def arguments(of: str) -> dict[str, object]:
    """Return the request fields for a path: {"project": "P", "region": "R", "subnetwork": "N"}."""
    words = path(of).split("/")
    if words[2] == "global":
        words = [*words[:2], *words[3:]]
    return {noun(key): value for key, value in zip(words[::2], words[1::2], strict=True)}


def snake(collection: str) -> str:
    """Return the SDK's name of a collection: health_checks for healthChecks."""
    return _CAPITAL.sub("_", collection).lower()


def noun(collection: str) -> str:
    """Return the request field for one resource of a collection: health_check for healthChecks."""
    words = snake(collection)
    for many, one in (("ies", "y"), ("sses", "ss"), ("s", "")):
        if words.endswith(many):
            return words.removesuffix(many) + one
    return words

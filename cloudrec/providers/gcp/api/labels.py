"""Tags encoded as Google Cloud labels, or as JSON in a description for resources without labels.

The value of a label has up to 63 of the characters a-z, 0-9, - and _. So `/` is encoded as `__`, any other
byte as `_` and two hexadecimal digits, and a longer value continues in a second label.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from cloudrec.engine.graph import TAG_EXPIRES, TAG_OWNER
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST = 63  # characters of a label's value
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-")
_ESCAPED = re.compile(r"__|_([0-9a-f]{2})")
_MORE = re.compile(r"(.+)--(\d+)")  # the name of a label that continues another one
_MOMENT = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z")
_WRITTEN = re.compile(r"(\d{4})(\d\d)(\d\d)t(\d\d)(\d\d)(\d\d)z")
_OURS = "cloudrec-"  # the prefix of the names of cloudrec's tags
# Left out of a description that is too long: other fields show both.
_SPARE = (TAG_EXPIRES.removeprefix(_OURS), "region")
_SAID = "cloudrec:"  # the prefix of a description that holds tags


def encode(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the labels for the tags; the tag Name is left out, since the resource has a name."""
    labels: dict[str, str] = {}
    for name, value in tags.items():
        if not name.startswith(_OURS):
            continue
        text = _encode(_compact(value) if name == TAG_EXPIRES else value)
        parts = [text[start : start + _LONGEST] for start in range(0, len(text), _LONGEST)] or [""]
        labels |= {name if not number else f"{name}--{number}": part for number, part in enumerate(parts)}
    return labels


def decode(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the tags in a resource's labels; labels without cloudrec's prefix are ignored."""
    joined: dict[str, str] = {}
    for name in sorted(labels, key=_place):
        if name.startswith(_OURS):
            first = more[1] if (more := _MORE.fullmatch(name)) else name
            joined[first] = joined.get(first, "") + labels[name]
    tags = {name: _decode(text) for name, text in joined.items()}
    if TAG_EXPIRES in tags:
        tags[TAG_EXPIRES] = _spread(tags[TAG_EXPIRES])
    return tags


def is_ours(name: str) -> bool:
    """Return whether a label of this name holds a tag."""
    return name.startswith(_OURS)


def describe(tags: Mapping[str, str], longest: int = 1024) -> str:
    """Return a description that holds the tags.

    Args:
        tags: the tags.
        longest: the limit in characters. For a longer description, the end and the region are left out first,
            and then the owner's name is cut.
    """
    ours = {name.removeprefix(_OURS): value for name, value in tags.items() if name.startswith(_OURS)}
    for spare in _SPARE:
        if len(_said(ours)) > longest:
            ours.pop(spare, None)
    too_long, owner = len(_said(ours)) - longest, TAG_OWNER.removeprefix(_OURS)
    if too_long > 0 and owner in ours:
        ours[owner] = ours[owner][:-too_long]
    return _said(ours)


def described(description: str) -> dict[str, str]:
    """Return the tags in a description; empty if it holds none, or is not valid JSON any more."""
    if not description.startswith(_SAID):
        return {}
    try:
        tags = safe_object(description.removeprefix(_SAID))
        return {f"{_OURS}{name}": str(value) for name, value in tags.items()}
    except (ValueError, AttributeError):  # a user edited the description
        return {}


def _said(ours: Mapping[str, str]) -> str:
    return _SAID + json.dumps(ours, separators=(",", ":"))


def _place(name: str) -> tuple[str, int]:
    more = _MORE.fullmatch(name)
    return (more[1], int(more[2])) if more else (name, 0)


def _encode(value: str) -> str:
    return "".join(
        chr(byte) if byte in _PLAIN else "__" if byte == ord("/") else f"_{byte:02x}"
        for byte in value.encode()
    )


def _decode(text: str) -> str:
    def plain(found: re.Match[str]) -> bytes:
        return bytes([int(found[1], 16)]) if found[1] else b"/"

    parts, end = list[bytes](), 0
    for found in _ESCAPED.finditer(text):
        parts += [text[end : found.start()].encode(), plain(found)]
        end = found.end()
    return b"".join([*parts, text[end:].encode()]).decode(errors="replace")


def _compact(moment: str) -> str:
    found = _MOMENT.fullmatch(moment)
    return "{}{}{}t{}{}{}z".format(*found.groups()) if found else moment


def _spread(text: str) -> str:
    found = _WRITTEN.fullmatch(text)
    return "{}-{}-{}T{}:{}:{}Z".format(*found.groups()) if found else text

"""Answers whose content is wrong and whose HTTP, JSON, XML or protobuf is well formed, drawn by a seed."""

from __future__ import annotations

import json
import random
import re
from copy import deepcopy
from typing import Any

# What a service must not put instead of a value.
_WRONG: tuple[Any, ...] = (
    None, "", "x", "0", "\x00\x1b[2J\r\n", "🜁" * 40, "../../etc/passwd", "a" * 70_000,
    0, 1, -1, 0.5, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, float("nan"), float("-inf"),
    True, False, [], {}, [None], [[]], [{}], ["x"], [1], {"": None}, {"x": "y"}, "2026-13-45T99:99:99Z",
    "Unspecified", "succeeded", "0000-00-00", "1e999", "-0", "NaN",
)  # fmt: skip
_WRONG_TEXTS = (
    "",
    " ",
    "x",
    "0",
    "-1",
    "1.5",
    "99999999999999999999",
    "NaN",
    "true",
    "2026-13-45",
    "a" * 70_000,
)
_DEPTH = 3_000
_MOST_CHANGES = 3
_ELEMENT = re.compile(rb"<([A-Za-z][\w.:-]*)(?: [^<>]*)?>([^<]*)</\1>")  # without children
_TREE = re.compile(rb"<([A-Za-z][\w.:-]*)(?: [^<>]*)?>.*?</\1>", re.DOTALL)


def changed(body: bytes, draw: random.Random) -> bytes:
    """Return an answer with one to three changes of its content, or in another encoding."""
    if not body.strip():
        return draw.choice((b"{}", b"[]", b"null", b"0", b'""'))
    if draw.random() < 0.05:
        return _encoded(body, draw)
    for _ in range(draw.randint(1, _MOST_CHANGES)):
        if body.lstrip().startswith(b"<"):
            body = _changed_xml(body, draw)
        else:
            try:
                document = json.loads(body)
            except (ValueError, RecursionError):  # a text, or already too deep
                return body
            body = _written(_changed_value(document, draw)).encode("utf-8", "surrogatepass")
    return body


def _encoded(body: bytes, draw: random.Random) -> bytes:
    text = body.decode("utf-8", "replace")
    return text.encode(draw.choice(("utf-16", "utf-32", "utf-8-sig", "cp037", "utf-7")), "replace")


def _written(document: Any) -> str:
    return document if isinstance(document, _Raw) else json.dumps(document)


class _Raw(str):
    """JSON as a text, which no object in memory can stand for."""

    __slots__ = ()


def _places(value: Any, parent: Any = None, key: Any = None) -> list[tuple[Any, Any]]:
    """Return each value of a document by its container and its key there; without one for the whole."""
    found = [(parent, key)]
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inside:
        found += _places(each, value, name)
    return found


def _changed_value(document: Any, draw: random.Random) -> Any:
    parent, key = draw.choice(_places(document))
    how = draw.random()
    if parent is None:
        if how < 0.2:
            return _Raw("[" * _DEPTH + "]" * _DEPTH)
        return deepcopy(draw.choice(_WRONG))
    if how < 0.3:
        del parent[key]
    elif how < 0.35 and isinstance(parent, list):
        parent.append(parent[key])
    elif how < 0.4:
        parent[key] = (
            [] if isinstance(parent[key], list) else {} if isinstance(parent[key], dict) else [parent[key]]
        )
    else:
        parent[key] = deepcopy(draw.choice(_WRONG))
    return document


def _changed_xml(body: bytes, draw: random.Random) -> bytes:
    elements = list(_ELEMENT.finditer(body)) or list(_TREE.finditer(body))
    if not elements:
        return body
    found = draw.choice(elements)
    begin, end, name = found.start(), found.end(), found[1]
    if draw.random() < 0.2:
        # An element around it, up to its first end: well formed where none of its name is inside.
        around = list(re.finditer(rb"<([A-Za-z][\w.:-]*)>", body[:begin]))[-3:]
        if around:
            place = draw.choice(around)
            close = body.find(b"</" + place[1] + b">", place.end())
            if close >= end:
                begin, end, name = place.start(), close + len(place[1]) + 3, place[1]
    how = draw.random()
    if how < 0.35:
        new = b""
    elif how < 0.45:
        new = b"<" + name + b"/>"
    elif how < 0.55:
        new = body[begin:end] * 2
    elif how < 0.6:
        new = b"<item>" * 200 + b"</item>" * 200
    else:
        text = draw.choice(_WRONG_TEXTS).encode()
        new = b"<" + name + b">" + text + b"</" + name + b">"
    return body[:begin] + new + body[end:]


def changed_message(body: bytes, draw: random.Random) -> bytes:
    """Return a message of protobuf with one field removed, doubled or of another value.

    The format: https://protobuf.dev/programming-guides/encoding
    """
    fields = _fields(body)
    if not fields:
        return draw.choice((b"", b"\x08\x01", b"\x0a\x01x"))
    number = draw.randrange(len(fields))
    tag, kind, value = fields[number]
    how = draw.random()
    if how < 0.3:
        del fields[number]
    elif how < 0.4:
        fields.append(fields[number])
    elif kind == 0:
        fields[number] = (tag, kind, _varint(draw.choice((0, 1, 99, 2**31, 2**63))))
    elif kind == 2:
        inner = (
            changed_message(value, draw)
            if how < 0.8
            else draw.choice((b"", b"x", b"\xff\xfe", b"a" * 70_000))
        )
        fields[number] = (tag, kind, inner)
    return b"".join(
        _varint(tag << 3 | kind) + (_varint(len(value)) if kind == 2 else b"") + value
        for tag, kind, value in fields
    )


def _fields(body: bytes) -> list[tuple[int, int, bytes]]:
    """Return the fields of a message; nothing if it is none, such as a text."""
    found: list[tuple[int, int, bytes]] = []
    place = 0
    try:
        while place < len(body):
            key, place = _read_varint(body, place)
            kind, begin = key & 7, place
            if kind == 0:
                _, place = _read_varint(body, place)
            elif kind in {1, 5}:
                place += 8 if kind == 1 else 4
            elif kind == 2:
                size, begin = _read_varint(body, place)
                place = begin + size
            else:
                return []
            if place > len(body) or key < 8:
                return []
            found.append((key >> 3, kind, body[begin:place]))
    except IndexError:
        return []
    return found


def _read_varint(body: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])

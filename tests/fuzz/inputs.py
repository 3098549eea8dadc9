"""Strategies for bad inputs: specs, flags, variables, files of a home, datasets, records and names.

Most inputs are a valid document with one to three changes, since text that is wrong everywhere does not get
past the first check. Each is plain data, so a failure can be printed and run again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from hypothesis import strategies as st

ESCAPES = "\x1b[2J\x1b]0;owned\x07"
DEEP = "[" * 3000
HUGE = "9" * 5000
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
)

# Values that one program or another takes badly.
TEXTS = [
    *(
        "",
        " ",
        ".",
        "..",
        "../../evil",
        "/etc/passwd",
        "a/../../b",
        "~",
        "~root",
        "-",
        "--",
        "-f",
        "--help",
        "=",
    ),
    *(
        "null",
        "true",
        "no",
        "0x_",
        "1_0",
        "1e400",
        "nan",
        "-inf",
        "2020-13-45",
        "2020-01-01T00:00:00Z",
        "12:30:45",
    ),
    *(
        "!!int x",
        "!!python/object:os.system",
        "&a *a",
        "*a",
        "{",
        "[",
        "]",
        "%",
        "@x",
        "`x`",
        "'",
        '"',
        ": :",
        "#",
        "\t",
    ),
    *(
        "\x00",
        "a\nb",
        "\r\n",
        ESCAPES,
        "\u202eabc",
        "é",
        "🚀" * 40,
        "\ud800",
        "\ufeff",
        "a" * 300,
        "a" * 70_000,
    ),
    *(
        "$(id)",
        "`id`",
        "; id",
        "{{7*7}}",
        "%s%n",
        "</script>",
        "a,b",
        ",",
        "=x",
        "x=",
        "A=B=C",
        "s3://",
        "s3:///x",
    ),
    *(
        "s3://b/../../x",
        "gs://" + "b" * 300,
        "file:///etc",
        "file://../x",
        "ssh://h/x",
        "ssh://-oProxyCommand=x/y",
    ),
    *(
        "http://[::1",
        "http://x:99999",
        "ray://",
        "0",
        "-1",
        "1",
        "1.5",
        "1e9",
        "99999999999999999999",
        HUGE[:400],
    ),
    *(
        "8h",
        "0h",
        "-8h",
        "1e9h",
        "99999999999999d",
        "0.0000001s",
        "1.2.3",
        "latest",
        "x y z",
        "a@b",
        "local",
        "aws",
    ),
]
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**40, 1.5, -0.0, 1e308, float("inf"), float("nan")),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": {}}}, [1] * 200, {"a" * 300: 1}),
]

texts = st.one_of(st.sampled_from(TEXTS), st.sampled_from(TEXTS), st.text(max_size=30))


def _in_environment(text: str) -> str:
    """Return a text that a variable or an argument can hold: the kernel has no NUL in them, and a limit."""
    return text.replace("\x00", "")[:30_000].encode("utf-8", "replace").decode()


words = texts.map(_in_environment)
values = st.one_of(st.sampled_from(VALUES), texts, st.integers(), st.floats())
keys = st.one_of(
    st.sampled_from(["", "..", "name", "version", "a\nb", "é", "-", "kind", "schema_version"]),
    st.text(max_size=8),
)


@dataclass(frozen=True, kw_only=True)
class BadInput:
    """One input.

    Attributes:
        area: what is wrong in it: spec, flags, environment, home, data, records, notify or env-files.
        command: the words after `cloudrec`; for records, the name of a reader.
        environment: variables.
        files: contents by path, below the folder of the test.
    """

    area: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """Return the document with one to three values replaced, removed or added."""
    for _ in range(draw(st.integers(1, 3))):
        document = _change(draw, document)
    return document


def _change(draw: st.DrawFn, document: Any) -> Any:
    inner = (
        list(document)
        if isinstance(document, list)
        else list(document.items())
        if isinstance(document, dict)
        else []
    )
    if not inner or draw(st.integers(0, 3)) == 0:
        how = draw(st.integers(0, 3))
        if how == 0 and isinstance(document, dict):
            return {**document, draw(keys): draw(values)}
        if how == 1 and isinstance(document, list):
            return [*document, draw(values)]
        return draw(values)
    place = draw(st.integers(0, len(inner) - 1))
    if isinstance(document, list):
        return [_change(draw, each) if n == place else each for n, each in enumerate(document)]
    key = inner[place][0]
    if draw(st.integers(0, 9)) == 0:
        return {name: value for name, value in document.items() if name != key}
    return {**document, key: _change(draw, document[key])}


ELSE = [b"", b"\xff\xfe", b"<html>504</html>", b"null", b"[]", b"{}", b"7", b'"x"', b"\x00" * 50]
LARGE = [each.encode() for each in (DEEP, '{"a":' * 3000, HUGE, BOMB, "[" + HUGE + "]")]
bytes_of_texts = texts.map(lambda text: text.encode("utf-8", "surrogatepass"))


@st.composite
def damaged(draw: st.DrawFn, text: bytes) -> bytes:
    """Return bytes cut off, flipped, repeated, or replaced by something else entirely."""
    place = draw(st.integers(0, max(len(text) - 1, 0)))
    how = draw(st.integers(0, 3))
    if how == 0:
        return text[:place] + draw(st.sampled_from([b"", text[place:] + text[place:]]))
    if how == 1:
        return text[:place] + bytes([draw(st.integers(0, 255))]) + text[place + 1 :]
    if how == 2:
        return text[:place] + draw(bytes_of_texts) + text[place:]
    return draw(
        st.one_of(st.sampled_from(ELSE), st.sampled_from(LARGE), st.binary(max_size=60), bytes_of_texts)
    )


@st.composite
def json_files(draw: st.DrawFn, document: Any) -> bytes:
    """Return a JSON document with changes, or its text with damage."""
    if draw(st.integers(0, 3)) == 0:
        return draw(damaged(json.dumps(document).encode()))
    return json.dumps(draw(changed(document))).encode("utf-8", "surrogatepass")


@st.composite
def json_lines(draw: st.DrawFn, lines: Sequence[Any]) -> bytes:
    """Return JSON Lines of which some are changed or damaged."""
    whole = [draw(json_files(each)) if draw(st.booleans()) else json.dumps(each).encode() for each in lines]
    return b"\n".join(whole) + draw(st.sampled_from([b"", b"\n", b"\n\n{"]))


@st.composite
def yaml_files(draw: st.DrawFn, document: Any) -> bytes:
    """Return a YAML document with changes, or its text with damage."""
    if draw(st.integers(0, 3)) == 0:
        return draw(damaged(_dumped(document, is_unicode=False)))
    try:
        return _dumped(draw(changed(document)), is_unicode=draw(st.booleans()))
    except yaml.YAMLError:
        return draw(bytes_of_texts)


def _dumped(document: Any, *, is_unicode: bool) -> bytes:
    try:  # in C, which takes a tenth of the time
        text = yaml.dump(document, Dumper=yaml.CSafeDumper, allow_unicode=is_unicode)
    except UnicodeEncodeError:  # half of a surrogate pair
        text = yaml.safe_dump(document, allow_unicode=is_unicode)
    return text.encode("utf-8", "surrogatepass")

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloudrec.data.format import tsv
from cloudrec.data.prepare.encode import HashEncoder, hashed
from tests.unit.data import support_reference as reference

_GOOD_INTEGER = st.one_of(
    st.just(b""),
    st.integers(-3, 300).map(lambda i: str(i).encode()),
    st.integers(-(2**63), 2**63 - 1).map(lambda i: str(i).encode()),
    st.sampled_from([b"-0", b"007", b"000000000000000000000000012", b"-00000000000000000000001"]),
)
_GOOD_CATEGORY = st.one_of(
    st.integers(0, 2**32 - 1).map(lambda i: f"{i:08x}".encode()),
    st.sampled_from([b"", b"0", b"f", b"ABCDEF09", b"aBcD", b"00000000", b"ffffffff", b"1234567"]),
)
_BAD_FIELD = st.one_of(
    st.sampled_from(
        [
            *(
                b"+5",
                b" 5",
                b"5 ",
                b"--5",
                b"-",
                b"1_0",
                b"5.0",
                b"1e3",
                b"0x1",
                b"nan",
                b'"5"',
                b"9223372036854775808",
            ),
            *(
                b"-9223372036854775809",
                b"g",
                b"123456789",
                b"00000000a",
                b"abc defg",
                b"\0",
                b"\xe9",
                b"\xff",
                b"\r",
            ),
            *(b"0" * 5000, b"1" * 5000, b"#", b"@", b"`", b"/", b":", b"G", b"\x7f", b"5\r", b"12345678\r"),
        ]
    ),
    st.binary(max_size=10),
    st.text("0123456789abcdefg-+. \r", max_size=12).map(str.encode),
)


@st.composite
def _lines(draw: st.DrawFn) -> bytes:
    """Draw a line: mostly good, else with a field replaced, added or removed, or of another kind."""
    fields = [
        draw(st.sampled_from([b"0", b"1"])),
        *draw(st.lists(_GOOD_INTEGER, min_size=13, max_size=13)),
        *draw(st.lists(_GOOD_CATEGORY, min_size=26, max_size=26)),
    ]
    kind = draw(st.sampled_from(["good"] * 6 + ["field"] * 4 + ["more", "fewer", "blank", "noise"]))
    if kind == "field":
        fields[draw(st.integers(0, 39))] = draw(_BAD_FIELD)
    elif kind == "more":
        fields.insert(draw(st.integers(0, 40)), draw(_GOOD_CATEGORY))
    elif kind == "fewer":
        del fields[draw(st.integers(0, 39))]
    elif kind == "blank":
        return b""
    elif kind == "noise":
        return draw(st.binary(max_size=300)).replace(b"\n", b"")
    return b"\t".join(fields) + draw(st.sampled_from([b"", b"", b"", b"\r"]))


@settings(max_examples=150, deadline=None)
@given(st.lists(_lines(), max_size=12))
def test_any_text_gives_the_result_of_the_reference_reader(lines: list[bytes]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    lines = text.split(b"\n")[:-1]
    rows, bad = reference.read(text)

    encoder = HashEncoder(buckets=1 << 20)

    parsed = tsv.parse(tsv.Chunk(text, 1, 0, len(lines)), encoder)
    again = tsv.parse(tsv.Chunk(text, 1, 0, len(lines)), encoder, lambda rows: rows % 2 == 1)

    assert [b.line for b in parsed.bad] == bad
    assert parsed.labels.tolist() == [r.label for r in rows]
    np.testing.assert_allclose(
        parsed.dense, np.array([reference.dense(r) for r in rows]).reshape(-1, 13), rtol=1e-6, atol=1e-7
    )
    numbers = [[_hashed(feature, c) for feature, c in enumerate(r.categories)] for r in rows]
    assert parsed.numbers.T.tolist() == numbers
    good = [number - 1 for number in range(1, len(lines) + 1) if number not in bad]
    order = sorted(range(len(rows)), key=lambda index: good[index] % 2)  # stable: held-out rows go behind
    assert again.held_out == sum(row % 2 for row in good)
    assert again.labels.tolist() == [rows[index].label for index in order]
    assert again.numbers.T.tolist() == [numbers[index] for index in order]
    assert np.array_equal(again.dense, parsed.dense[order])


def _hashed(feature: int, code: int | None) -> int:
    return 0 if code is None else int(hashed(np.array([code], np.uint32), feature, buckets=1 << 20)[0])


def test_integers_are_parsed_equally_in_blocks_and_one_by_one() -> None:
    values = [
        0,
        9,
        10,
        65_535,
        65_536,
        99_999_999,
        100_000_000,
        2**53 + 1,
        2**63 - 1,
        -1,
        -9_999_999,
        -(2**63),
    ]
    lines = [_line(I5=str(v).encode(), I13=b"", C3=b"") + b"\n" for v in values] * 700

    parsed = tsv.parse(tsv.Chunk(b"".join(lines), 1, 0, len(lines)), HashEncoder(buckets=9))

    expected = np.log1p(np.maximum(np.array(values), 0).astype(np.float32))
    assert np.array_equal(parsed.dense[:, 4], np.tile(expected, 700))
    assert not parsed.dense[:, 12].any()
    assert not parsed.numbers[2].any()


def _line(**changed: bytes) -> bytes:
    fields = dict.fromkeys(tsv.COLUMNS, b"1") | changed
    return b"\t".join(fields.values())


@pytest.mark.parametrize(
    ("line", "reason", "value"),
    [
        (b"", "1 columns instead of 40", ""),
        (_line() + b"\t", "41 columns instead of 40", None),
        (_line(label=b"2"), "the label is not 0 or 1", "2"),
        (_line(label=b""), "the label is not 0 or 1", ""),
        (_line(I3=b"3.5"), "I3 is not an integer", "3.5"),
        (_line(I13=b"9" * 19), "I13 does not fit 64 bits", "9" * 19),
        (_line(C1=b"xyz"), "C1 is not up to 8 hexadecimal digits", "xyz"),
        (_line(C26=b"123456789"), "C26 is not up to 8 hexadecimal digits", "123456789"),
        (_line(C2=b"caf\xe9"), "a byte that is not ASCII", "caf\\xe9"),
        (_line(C2=b"a\0"), "a NUL byte", None),
        (_line(C2=b"0" * 5000), "a line longer than 4,096 bytes", None),
    ],
)
def test_a_bad_line_is_explained(line: bytes, reason: str, value: str | None) -> None:
    parsed = tsv.parse(tsv.Chunk(line + b"\n", 7, 0, 1), HashEncoder(buckets=9))

    (bad,) = parsed.bad
    assert (bad.line, bad.reason) == (7, reason)
    assert value is None or bad.value == value
    assert len(bad.value) <= 50

"""YAML that readers must refuse or read, without a crash or a long delay."""

from __future__ import annotations

LEVELS = range(1, 10)
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in LEVELS
)
MERGE_BOMB = "a0: &a0 {k: v}\n" + "".join(
    f"a{level}: &a{level}\n  <<: [{', '.join([f'*a{level - 1}'] * 9)}]\n  k{level}: 1\n" for level in LEVELS
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{level}: &a{level} [*a{level - 1}]\n" for level in range(1, 1000))

# text -> expected message
REFUSED = {
    "x: !!int x": "'x' is no int",
    "x: !!int ''": "'' is no int",
    "y: 1\nx: !!float x": "line 2",
    "x: !!bool z": "'z' is no bool",
    "x: 0x_": "'0x_' is no int",
    "x: " + "9" * 5000: "is no int",
    "x: 0x" + "f" * 5000: "is no int",
    "[" * 400: "nested deeper than the limit of 50 levels",
    "[" * 20_000: "nested deeper",
    "{" * 20_000: "nested deeper",
    "x: " + "[" * 60 + "]" * 60: "nested deeper",
    "- " * 20_000: "nested deeper",
    "? " * 20_000: "nested deeper",
    CHAIN: "nested deeper",
    "trainer: &a {b: *a}": "the alias 'a' is inside the value that it refers to",
    "train: &a [*a]": "the alias 'a' is inside",
    "train: *missing": "undefined alias 'missing'",
    BOMB: "line 6: it holds more than 4,194,304 characters with its aliases written out",
    MERGE_BOMB: "it holds more than 4,194,304 characters",
    "s: &s " + "y" * 100_000 + "\nx: [" + ", ".join(["*s"] * 200) + "]": "it holds more than",
    "x: [" + "a," * 500_000 + "]": "it holds more than",
    "#" * ((1 << 20) + 1): "1,048,576",
    "x: !!python/object/apply:os.system [ls]": "python/object/apply:os.system' is not known here",
    "x: !!python/name:os.system": "is not known here",
    "x: !own y": "the tag '!own' is not known here",
    "x: !!binary aGk=": "is not known here",
    "x: !!set {a}": "is not known here",
    "x: !!str [a]": "expected a scalar node",
    "\tx: 1": "line 1: not valid YAML: ",
    "x: 1\ny: \0": "line 2: not valid YAML: it holds the character '\\x00'",
    "x: \x07": "it holds the character '\\x07'",
    "a: 1\n---\nb: 2": "another document",
    "<<: 5": "expected a mapping or list of mappings for merging",
    "{[a]: 1}": "unhashable key",
    "x: '": "line 1: not valid YAML",
    "x: [1, 2": "not valid YAML",
}
READ = {
    "": None,
    "x: 2020-13-45": {"x": "2020-13-45"},
    "x: 2020-01-01": {"x": "2020-01-01"},
    "x: 2020-01-01T00:00:00Z": {"x": "2020-01-01T00:00:00Z"},
    "x: !!timestamp q": {"x": "q"},
    "x: =": {"x": "="},
    "\ufeffx: 1": {"x": 1},
    "x: &a 1\ny: *a": {"x": 1, "y": 1},
    "b: &b {x: 1, y: 2}\nc: {<<: *b, y: 3}": {"b": {"x": 1, "y": 2}, "c": {"x": 1, "y": 3}},
    "b: &b {x: 1}\nc: &c {y: 2}\nd: {<<: [*b, *c]}": {"b": {"x": 1}, "c": {"y": 2}, "d": {"x": 1, "y": 2}},
    "x: [1, 1.5, yes, ~, text, 0x10]": {"x": [1, 1.5, True, None, "text", 16]},
    "x: !!str 5": {"x": "5"},
    "x: 1\nx: 2": {"x": 2},
    "1: a": {1: "a"},
}

"""The features of a dataset: what its columns mean, how they become numbers, and how a model embeds them.

`data prepare` reads a schema from a file or from `features:` of cloudrec.yaml and writes it, complete, into
dataset.json; the trainer reads it from there. `parse` takes both forms:

    label: clicked
    dense: [price, {name: age, transform: normalise, missing: 30}]
    sparse: [city, {name: tags, kind: multi_hot, pooling: mean, dim: 16}]

`labels: [clicked, {name: bought, weight: 2, missing: skip}]` in place of `label` makes several tasks.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from cloudrec_contract.schema_values import (
    NAME,
    SchemaError,
    closest,
    finite,
    items,
    keys_and_values,
    one_of,
    plain_name,
    refuse_unknown,
    shown,
    text,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = (
    "CRITEO",
    "FIRST_ID",
    "LEARNED_TRANSFORMS",
    "MISSING_ID",
    "MISSING_LABEL",
    "UNKNOWN_ID",
    "DenseFeature",
    "FeatureSchema",
    "SchemaError",
    "SparseFeature",
    "SplitRule",
    "TaskLabel",
    "closest",
    "parse",
    "time_point",
)

TRANSFORMS = ("none", "log1p", "signed_log1p", "normalise", "min_max")
LEARNED_TRANSFORMS = ("normalise", "min_max")  # that depend on the training rows
KINDS = ("single", "multi_hot", "sequence")
MANAGED = "managed_collision"  # the encoding whose ids are hashes that the trainer gives rows
ENCODINGS = ("vocabulary", "hash", "bucketise", MANAGED)
POOLINGS = ("sum", "mean", "position")
MISSING_ID = 0
HASH_LIMIT = (1 << 63) - 1  # ids of managed_collision are below it
UNKNOWN_ID = 1  # with a vocabulary
FIRST_ID = 2  # of a vocabulary's values
MOST_FEATURES = 4096
MOST_LABELS = 64
MISSING_LABEL = 255  # in the arrays of labels, of rows that take no part in a task
MAX_LENGTH = 50  # of a sequence, unless stated
_MOST_ROWS = (1 << 31) - 1
_LIMITS = {
    "min_frequency": (1, _MOST_ROWS),
    "max_size": (1, _MOST_ROWS - FIRST_ID),
    "unknown_buckets": (1, 1 << 24),
    "buckets": (2, _MOST_ROWS),
    "dim": (4, 65_536),
    "max_length": (1, 1024),
}
# Values that a schema's JSON leaves out, as before there were these keys.
_LEFT_OUT = {
    "max_length": None,
    "weights": None,
    "cross": (),
    "lookup": None,
    "clip": None,
    "unknown_buckets": 1,
}
_SHARED = ("encoding", "dim", "min_frequency", "max_size", "unknown_buckets", "buckets", "boundaries")
_MOST_CROSSED = 8  # columns
MOST_LOOKED_UP = 50_000  # values of a map, which every checkpoint contains
_MOST_LOOKUP_TEXT = 1 << 20  # characters of a map
Lookup = tuple[tuple[str, str | float], ...]  # values of a column and what they become, in the order of texts


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLabel:
    """A column of 0 and 1 that a model learns.

    Attributes:
        name: of the task, in metrics and scores.
        column: its column in the files.
        weight: the factor on its part of the loss.
        missing: whether a row may lack it; such a row takes no part in the loss and the metrics of this task.
    """

    name: str
    column: str
    weight: float = 1.0
    missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseFeature:
    """A number of each row.

    Attributes:
        name: its name in the dataset and the model.
        column: its column in the files.
        missing: the value where a row has none, before the transform; None: such a row is malformed.
        clip: the least and the most; numbers beyond them become these, before the transform. None: no limits.
        transform: none, log1p (log(1 + x), for x below 0 that of 0), signed_log1p (for x below 0, minus that
            of -x), normalise, by the mean and the deviation of the training rows, or min_max, from 0 at their
            least number to 1 at their most.
        lookup: the number of each value of the column; a value that it lacks is missing. None: the column
            holds numbers.
    """

    name: str
    column: str
    missing: float | None = 0.0
    clip: tuple[float, float] | None = None
    transform: str = "none"
    lookup: Lookup | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseFeature:
    """A category of each row, or several.

    Attributes:
        name: its name in the dataset and the model.
        column: its column in the files.
        kind: single, multi_hot for a list of any length, or sequence for a list in the order of time.
        max_length: the values of a sequence that are kept, the last ones; None for other kinds.
        separator: between the values of a list in a text column; None: the column holds lists.
        missing: whether a row may lack a value. A missing single value gets the id 0, a missing list is
            empty.
        encoding: vocabulary, hash, bucketise for numbers, or managed_collision: ids are hashes of 63 bits,
            and the trainer gives each that occurs its own row, while there are some.
        min_frequency: values that fewer training rows have share the id of unknown values.
        max_size: the most values of a vocabulary, the most frequent ones; None: all.
        unknown_buckets: the ids, by hash, of values that a vocabulary lacks; its own ids begin behind them.
        buckets: the ids of a hash, with that of a missing value; with managed_collision the table's rows.
        boundaries: between the buckets of `bucketise`, ascending.
        table: the embedding table; features with the same one share ids and vectors.
        dim: the width of the table; None: that of the training's configuration.
        pooling: sum or mean of the vectors of a multi_hot feature. Those of a sequence are averaged for
            models that do not read it in order; with `position` they are summed, for all models, after each
            is multiplied by a learned weight of its place.
        weights: the column of the weights of a multi_hot feature's values, as many as these; None: each
            weighs 1. The vectors are multiplied by them; a mean is divided by their sum.
        cross: the columns whose values together are the value, if it is not that of `column`. If one of them
            is missing, so is the value.
        lookup: what each value of the column becomes before its encoding; a value that it lacks is missing.
    """

    name: str
    column: str
    kind: str = "single"
    max_length: int | None = None
    separator: str | None = None
    missing: bool = True
    encoding: str = "vocabulary"
    min_frequency: int = 3
    max_size: int | None = None
    unknown_buckets: int = 1
    buckets: int = 100_000
    boundaries: tuple[float, ...] = ()
    table: str
    dim: int | None = None
    pooling: str = "sum"
    weights: str | None = None
    cross: tuple[str, ...] = ()
    lookup: Lookup | None = None

    @property
    def first_id(self) -> int:
        """The id of a vocabulary's first value; those before are of a missing value and of unknown ones."""
        return UNKNOWN_ID + self.unknown_buckets

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the values."""
        return self.cross or (self.column,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """Which rows are test rows.

    Attributes:
        by: time, for the newest rows, or user, for all rows of some users.
        column: of the time or the user.
        test: the share of the rows or the users; None: `since` is given.
        since: the time from which on rows are test rows, as in the schema.
    """

    by: str
    column: str
    test: float | None = None
    since: float | str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the rule as plain values."""
        share = {"test": self.test} if self.test is not None else {"from": self.since}
        return {"by": self.by, "column": self.column, **share}


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureSchema:
    """The features of a dataset, its labels, and the column of the samples' weights if there is one.

    `item` are the sparse features of the item that a row is about; the first one identifies it. `split` says
    which rows are test rows; None: a share of all, by their numbers.
    """

    labels: tuple[TaskLabel, ...]
    dense: tuple[DenseFeature, ...]
    sparse: tuple[SparseFeature, ...]
    weight: str | None = None
    item: tuple[str, ...] = ()
    split: SplitRule | None = None

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the labels if there are several; empty for one."""
        return tuple(each.name for each in self.labels) if len(self.labels) > 1 else ()

    @property
    def answers(self) -> tuple[str, ...]:
        """The columns that no feature may read: the labels' and the weights'."""
        return (*(each.column for each in self.labels), *(() if self.weight is None else (self.weight,)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        dense = [each.column for each in self.dense]
        sparse = [column for each in self.sparse for column in each.columns]
        weights = [each.weights for each in self.sparse if each.weights is not None]
        split = () if self.split is None else (self.split.column,)
        return tuple(dict.fromkeys((*self.answers, *dense, *sparse, *weights, *split)))

    @property
    def single(self) -> tuple[SparseFeature, ...]:
        """The features with one id a row."""
        return tuple(each for each in self.sparse if each.kind == "single")

    @property
    def lists(self) -> tuple[SparseFeature, ...]:
        """The features with any number of ids a row."""
        return tuple(each for each in self.sparse if each.kind != "single")

    @property
    def sequences(self) -> tuple[SparseFeature, ...]:
        """The features whose ids are in the order of time."""
        return tuple(each for each in self.sparse if each.kind == "sequence")

    @property
    def weighted(self) -> tuple[SparseFeature, ...]:
        """The features whose values have weights."""
        return tuple(each for each in self.sparse if each.weights is not None)

    @property
    def managed(self) -> tuple[str, ...]:
        """The features whose ids are hashes of 63 bits; with some, a dataset has all ids in 64 bits."""
        return tuple(each.name for each in self.sparse if each.encoding == MANAGED)

    @property
    def tables(self) -> dict[str, tuple[SparseFeature, ...]]:
        """The features of each table, by its name."""
        found: dict[str, tuple[SparseFeature, ...]] = {}
        for each in self.sparse:
            found[each.table] = (*found.get(each.table, ()), each)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain values, which `parse` reads."""
        return {
            **self._answers_to_json(),
            "dense": [_plain(each) for each in self.dense],
            "sparse": [_plain(each) for each in self.sparse],
            **({"item": list(self.item)} if self.item else {}),
            **({} if self.split is None else {"split": self.split.to_json()}),
        }

    def _answers_to_json(self) -> dict[str, Any]:
        """Return a single label by its column, as it was before there could be several."""
        weight = {} if self.weight is None else {"weight": self.weight}
        if not self.tasks:
            return {"label": self.labels[0].column, **weight}
        labels = [{**asdict(each), "missing": "skip" if each.missing else "error"} for each in self.labels]
        return {"labels": labels, **weight}

    def mapping(self) -> list[dict[str, Any]]:
        """Return what decides the numbers and ids of each feature: not columns, dimensions and pooling."""
        dense = [
            {
                "name": each.name,
                "missing": each.missing,
                "transform": each.transform,
                **({} if each.clip is None else {"clip": list(each.clip)}),
                **_digest_of_lookup(each),
            }
            for each in self.dense
        ]
        return dense + [
            {
                "name": each.name,
                "kind": each.kind,
                "encoding": each.encoding,
                "table": each.table,
                **({"buckets": each.buckets} if each.encoding in ("hash", MANAGED) else {}),
                **({"boundaries": list(each.boundaries)} if each.encoding == "bucketise" else {}),
                **({"max_length": each.max_length} if each.kind == "sequence" else {}),
                **({"unknown_buckets": each.unknown_buckets} if each.unknown_buckets > 1 else {}),
                **({"weighted": True} if each.weights is not None else {}),
                **({"cross": len(each.cross)} if each.cross else {}),
                **_digest_of_lookup(each),
            }
            for each in self.sparse
        ]


def _digest_of_lookup(feature: DenseFeature | SparseFeature) -> dict[str, str]:
    if feature.lookup is None:
        return {}
    canonical = json.dumps(feature.lookup, separators=(",", ":"))
    return {"lookup": hashlib.sha256(canonical.encode()).hexdigest()}


def parse(document: object, read: Callable[[str], object] | None = None) -> FeatureSchema:
    """Return the schema that a document describes; short forms are completed.

    Args:
        document: the schema.
        read: returns the map in a file of a `lookup`, as keys and values; None: such a file is an error,
            since a dataset contains its maps.

    Raises:
        SchemaError: it is not valid.
    """
    given = keys_and_values(document, "features")
    refuse_unknown(given, ("label", "labels", "weight", "dense", "sparse", "item", "split"), "features")
    weight = given.get("weight")
    schema = FeatureSchema(
        labels=_labels(given),
        weight=None if weight is None else text(weight, "weight"),
        dense=tuple(_dense(each, read) for each in items(given.get("dense") or [], "dense")),
        sparse=tuple(_sparse(each, read) for each in items(given.get("sparse") or [], "sparse")),
        item=tuple(text(each, "item") for each in items(given.get("item") or [], "item")),
        split=None if given.get("split") is None else _split(given["split"]),
    )
    _check(schema)
    return schema


def time_point(value: str) -> float | None:
    """Return a time as a number: that of a number, or microseconds since 1970; None for other texts.

    A time without an offset is one of UTC.
    """
    try:
        found = float(value)
    except ValueError:
        try:
            time = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
        since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return float(since // timedelta(microseconds=1))
    return found if math.isfinite(found) else None


def _split(value: object) -> SplitRule:
    given = keys_and_values(value, "split")
    refuse_unknown(given, ("by", "column", "test", "from"), "split")
    by, test, since = given.get("by"), given.get("test"), given.get("from")
    one_of(by, ("time", "user"), "by of split")
    column = text(given.get("column"), "column of split")
    if (test is None) == (since is None) or (by == "user" and since is not None):
        wanted = "test, or from," if by == "time" else "test"
        raise SchemaError(f"split by {by} needs {wanted} and nothing else, as in `test: 0.1`")
    if test is not None and not 0 < finite(test, "test of split") < 1:
        raise SchemaError(f"test of split is {shown(test)}; it must be a share between 0 and 1")
    if since is not None and not isinstance(since, str):
        since = finite(since, "from of split")
    elif isinstance(since, str) and time_point(since) is None:
        raise SchemaError(
            f"from of split is {shown(since)}; it must be a number, or a time as in 2026-05-01 or "
            "2026-05-01T12:00:00"
        )
    return SplitRule(by=str(by), column=column, test=None if test is None else float(test), since=since)


def _labels(given: Mapping[str, Any]) -> tuple[TaskLabel, ...]:
    if "label" in given and "labels" in given:
        raise SchemaError("features has label and labels; keep labels, and name all of them there")
    if "labels" not in given:
        if "label" not in given:
            raise SchemaError(
                "features has no label; name the column of 0 and 1, as in `label: clicked`, or several, as "
                "in `labels: [clicked, bought]`"
            )
        column = text(given["label"], "label")
        return (TaskLabel(name=column, column=column),)
    labels = tuple(_task_label(each) for each in items(given["labels"], "labels"))
    if not 1 < len(labels) <= MOST_LABELS:
        count = f"{len(labels)} labels" if len(labels) != 1 else "one label"
        raise SchemaError(
            f"labels has {count}; it takes 2 to {MOST_LABELS}, and one alone is written as `label: clicked`"
        )
    for key in ("name", "column"):
        values = [getattr(each, key) for each in labels]
        if twice := [value for value in values if values.count(value) > 1]:
            raise SchemaError(f"labels has the {key} {twice[0]} twice; each task needs its own")
    return labels


def _task_label(entry: object) -> TaskLabel:
    values = _feature(entry, "labels", TaskLabel)
    name = values["name"]
    weight = values.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
        raise SchemaError(
            f"weight of {name} is {shown(weight)}; it must be a number above 0, the factor on its loss"
        )
    missing = values.get("missing", "error")
    one_of(missing, ("error", "skip"), f"missing of {name}")
    return TaskLabel(name=name, column=values["column"], weight=float(weight), missing=missing == "skip")


def _lookup(value: object, name: str, read: Callable[[str], object] | None, *, numbers: bool) -> Lookup:
    """Return the map of a feature, whose values are numbers or texts."""
    what = f"lookup of {name}"
    if isinstance(value, str):
        if read is None:
            raise SchemaError(f"{what} is {shown(value)}; a dataset contains the map itself")
        value = read(value)
    found: dict[str, str | float] = {}
    for key, given in keys_and_values(value, what).items():
        if numbers:
            found[key] = finite(_number_in(given), f"the value of {shown(key)} in {what}")
        elif isinstance(given, bool) or not isinstance(given, int | str) or given == "":
            raise SchemaError(
                f"the value of {shown(key)} in {what} is {shown(given)}; it must be a text or a whole number"
            )
        else:
            found[key] = str(given)
        if not key:
            raise SchemaError(f"{what} has a value for an empty text, which is a missing value: leave it out")
    if not found:
        raise SchemaError(f"{what} is empty; it must have a value and what that becomes")
    size = sum(len(key) + len(str(each)) for key, each in found.items())
    if len(found) > MOST_LOOKED_UP or size > _MOST_LOOKUP_TEXT:
        raise SchemaError(
            f"{what} has {len(found):,} values with {size:,} characters; {MOST_LOOKED_UP:,} values and "
            f"{_MOST_LOOKUP_TEXT:,} characters are the most, since every checkpoint contains them: join such "
            "a table to the files"
        )
    return tuple(sorted(found.items()))


def _number_in(value: object) -> object:
    """Return the number that a text has, as in CSV files; other values as they are."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _dense(entry: object, read: Callable[[str], object] | None) -> DenseFeature:
    values = _feature(entry, "dense", DenseFeature)
    name = values["name"]
    missing = values.get("missing", 0.0)
    values["missing"] = None if missing == "error" else finite(missing, f"missing of {name}")
    one_of(values.get("transform", "none"), TRANSFORMS, f"transform of {name}")
    if "lookup" in values:
        values["lookup"] = _lookup(values["lookup"], name, read, numbers=True)
    if "clip" in values:
        limits = [finite(each, f"clip of {name}") for each in items(values["clip"], f"clip of {name}")]
        if len(limits) != 2 or limits[0] >= limits[1]:  # noqa: PLR2004 - the least and the most
            raise SchemaError(
                f"clip of {name} is {limits}; it must be the least and the most number, as in [0, 100]"
            )
        values["clip"] = tuple(limits)
    return DenseFeature(**values)


def _sparse(entry: object, read: Callable[[str], object] | None) -> SparseFeature:
    values = _feature(entry, "sparse", SparseFeature)
    name = values["name"]
    if "cross" in values:
        values["cross"] = tuple(text(each, f"cross of {name}") for each in items(values["cross"], "cross"))
        values.setdefault("encoding", "hash")
    if values.get("boundaries"):
        values.setdefault("encoding", "bucketise")
    for key, allowed in {"kind": KINDS, "encoding": ENCODINGS, "pooling": POOLINGS}.items():
        one_of(values.get(key, allowed[0]), allowed, f"{key} of {name}")
    one_of(values.get("missing", True), (True, False, "error"), f"missing of {name}")
    values["missing"] = values.get("missing", True) is True
    for key, (least, most) in _LIMITS.items():
        if key in values:
            values[key] = whole(values[key], least, most, f"{key} of {name}")
    for key in ("separator", "weights"):
        if key in values:
            text(values[key], f"{key} of {name}")
    bounds = items(values.get("boundaries", ()), f"boundaries of {name}")
    values["boundaries"] = tuple(finite(each, f"boundaries of {name}") for each in bounds)
    values["table"] = plain_name(values.get("table", name), f"table of {name}")
    if values.get("kind") == "sequence":
        values.setdefault("max_length", MAX_LENGTH)
    if "lookup" in values:
        is_number = values.get("encoding") == "bucketise"
        values["lookup"] = _lookup(values["lookup"], name, read, numbers=is_number)
    feature = SparseFeature(**values)
    _check_sparse(feature)
    return feature


def _check_sparse(feature: SparseFeature) -> None:
    _check_encoding(feature)
    _check_kind(feature)
    if feature.cross:
        _check_cross(feature)


def _check_encoding(feature: SparseFeature) -> None:
    """Refuse keys that the encoding of a feature does not have, and values that it does not allow."""
    name, bounds, dim = feature.name, feature.boundaries, feature.dim
    if dim is not None and dim % 4:
        raise SchemaError(f"dim of {name} is {dim}; it must be a multiple of 4: take {dim + 4 - dim % 4}")
    if feature.encoding == MANAGED and feature.buckets <= FIRST_ID:
        raise SchemaError(
            f"buckets of {name} is {feature.buckets}; two rows are for missing and for unknown values, so it "
            f"must be at least {FIRST_ID + 1}"
        )
    if (feature.encoding == "bucketise") != bool(bounds):
        raise SchemaError(
            f"{name} has encoding {feature.encoding} and {len(bounds)} boundaries; bucketise needs some, and "
            "no other encoding has any"
        )
    if any(low >= high for low, high in pairwise(bounds)):
        raise SchemaError(f"boundaries of {name} are {list(bounds)}; they must ascend")
    if feature.unknown_buckets > 1 and feature.encoding != "vocabulary":
        raise SchemaError(
            f"{name} has unknown_buckets but encoding {feature.encoding}, which knows every value; "
            "leave them out"
        )


def _check_kind(feature: SparseFeature) -> None:
    """Refuse keys that the kind of a feature does not have."""
    name = feature.name
    if feature.separator is not None and feature.kind == "single":
        raise SchemaError(f"{name} has a separator but is single; add `kind: multi_hot`, or leave it out")
    if feature.weights is not None and feature.kind != "multi_hot":
        raise SchemaError(
            f"{name} has weights but is {feature.kind}; weights are those of the values of a list: take "
            "`kind: multi_hot`, or leave them out"
        )
    if feature.max_length is not None and feature.kind != "sequence":
        raise SchemaError(
            f"{name} has a max_length but is {feature.kind}; add `kind: sequence`, or leave it out"
        )
    _check_pooling(feature)


def _check_pooling(feature: SparseFeature) -> None:
    if feature.kind == "sequence" and feature.pooling == "mean":
        raise SchemaError(
            f"{feature.name} is a sequence and has pooling mean; the model decides what becomes of its "
            "vectors: leave pooling out, or take `position`, or `kind: multi_hot`"
        )
    if feature.kind != "sequence" and feature.pooling == "position":
        raise SchemaError(
            f"{feature.name} has pooling position but is {feature.kind}; places are those of a list with a "
            "max_length: take `kind: sequence`"
        )


def _check_cross(feature: SparseFeature) -> None:
    name, crossed = feature.name, feature.cross
    if not 2 <= len(set(crossed)) == len(crossed) <= _MOST_CROSSED:  # noqa: PLR2004 - a cross has two sides
        raise SchemaError(
            f"cross of {name} is {list(crossed)}; it must name 2 to {_MOST_CROSSED} different columns, as in "
            "[city, device]"
        )
    for key, allowed in {"encoding": ("hash", MANAGED), "kind": ("single",), "lookup": (None,)}.items():
        if getattr(feature, key) not in allowed:
            raise SchemaError(
                f"{name} has a cross and {key} {shown(getattr(feature, key))}; the values of a cross are "
                f"single and hashed: leave {key} out"
            )


def _feature(
    entry: object, where: str, kind: type[DenseFeature | SparseFeature | TaskLabel]
) -> dict[str, Any]:
    given = (
        {"name": entry} if isinstance(entry, str) else dict(keys_and_values(entry, f"an entry of {where}"))
    )
    if "name" not in given and "column" in given:
        given["name"] = given["column"]
    if "name" not in given:
        raise SchemaError(
            f"an entry of {where} has no name: {entry!r}; write a column's name, or {{name: ...}}"
        )
    name = given["name"]
    if not isinstance(name, str) or not NAME.fullmatch(name):  # YAML reads null, true and 3 as no text
        raise SchemaError(
            f"{where} has the name {shown(name)}; a name has letters, digits and _, begins with a letter and "
            f"has at most 100: give it one beside its column, as in {{name: price, column: {name!r}}}"
        )
    refuse_unknown(given, [each.name for each in fields(kind)], name)
    if given.get("cross") is not None and given.pop("column", None) is not None:
        raise SchemaError(f"{name} has a column and a cross; name the columns in cross alone")
    given["column"] = text(given.get("column", name), f"column of {name}")
    return {key: value for key, value in given.items() if value is not None}


def _check(schema: FeatureSchema) -> None:
    count = len(schema.dense) + len(schema.sparse)
    if not schema.sparse:
        raise SchemaError("features has no sparse feature; a model here embeds one at least")
    if count > MOST_FEATURES:
        raise SchemaError(f"features has {count:,} features; {MOST_FEATURES:,} is the most")
    if schema.weight in schema.answers[: len(schema.labels)]:
        raise SchemaError(
            f"weight is {schema.weight}, the column of a label; it must be another column, of numbers from 0"
        )
    if schema.split is not None and schema.split.column in schema.answers:
        raise SchemaError(f"split reads {schema.split.column}, the column of a label or of the weights")
    seen: set[str] = set()
    every: tuple[DenseFeature | SparseFeature, ...] = (*schema.dense, *schema.sparse)
    for each in every:
        if each.name in seen:
            raise SchemaError(f"features names {each.name} twice; give one of them another name")
        seen.add(each.name)
        _check_columns(each, schema)
    for table, shared in schema.tables.items():
        for key in _SHARED:
            values = {getattr(each, key) for each in shared}
            if len(values) > 1:
                names = " and ".join(each.name for each in shared)
                raise SchemaError(
                    f"{names} share the table {table}, but differ in {key}; give them equal ones"
                )
    _check_item(schema)


def _check_columns(feature: DenseFeature | SparseFeature, schema: FeatureSchema) -> None:
    columns = feature.columns if isinstance(feature, SparseFeature) else (feature.column,)
    for column in (*columns, getattr(feature, "weights", None)):
        if column in schema.answers:
            what = "weights'" if column == schema.weight else "label's"
            raise SchemaError(
                f"{feature.name} reads the {what} column {column}; a model would see the answer"
            )


def _check_item(schema: FeatureSchema) -> None:
    known = {each.name: each for each in schema.sparse}
    for name in schema.item:
        if name not in known:
            raise SchemaError(f"item names {name}, which is no sparse feature{closest(name, known)}")
        if known[name].kind == "sequence":
            raise SchemaError(
                f"item names {name}, a sequence; an item has single and multi_hot features: leave it out"
            )
    if len(set(schema.item)) < len(schema.item):
        raise SchemaError(f"item names a feature twice: {', '.join(schema.item)}; name each once")
    if schema.item and known[schema.item[0]].kind != "single":
        raise SchemaError(
            f"item begins with {schema.item[0]}, a list; the first feature identifies the item, so it must "
            "be single"
        )


def _plain(feature: DenseFeature | SparseFeature) -> dict[str, Any]:
    values = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in asdict(feature).items()
        if key not in _LEFT_OUT or value != _LEFT_OUT[key]
    }
    if feature.lookup is not None:
        values["lookup"] = dict(feature.lookup)
    if isinstance(feature, SparseFeature) and feature.cross:
        del values["column"]
    if isinstance(feature, DenseFeature) and feature.missing is None:
        values["missing"] = "error"
    return values


CRITEO = FeatureSchema(
    labels=(TaskLabel(name="label", column="label"),),
    dense=tuple(DenseFeature(name=f"I{i}", column=f"I{i}", transform="log1p") for i in range(1, 14)),
    sparse=tuple(SparseFeature(name=f"C{i}", column=f"C{i}", table=f"C{i}") for i in range(1, 27)),
)
"""The columns of Criteo's logs, which `data prepare` reads without a schema."""

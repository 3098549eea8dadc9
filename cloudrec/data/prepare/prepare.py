"""Conversion of files to the training format, in bounded memory.

Files with a feature schema are prepared by `table_pipeline`; what follows is about Criteo TSV.

The first pass parses the rows and writes labels and integers in their final form. It numbers categories in
the order of their first use, writes the numbers to the places of the ids, and counts them. The second pass
converts the numbers to ids. With hash encoding, and with the vocabulary of another dataset (`like`), the
first pass writes the ids, and the second one computes only checksums. The vocabulary is written beside the
shards. Everything is built in OUT/.tmp and moved into place at the end, dataset.json last: a folder without
dataset.json is not a dataset, and an earlier dataset stays until the new one is complete.

Memory: per thread a few chunks (4 MiB of text each, and as much again after parsing), and the categories (at
most 84 bytes per distinct one, `max_vocabulary` of them per feature).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.data import require_extra
from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.errors import DataError, UsageError
from cloudrec_contract.objectstore.schemes import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cloudrec.data.prepare.folder import BadRow
    from cloudrec.data.vocabulary import KnownVocabulary
    from cloudrec_contract.features import FeatureSchema

_SHOWN_BAD_ROWS = 20
_TABLES = (".parquet", ".pq", ".jsonl", ".ndjson")  # of files that cannot be TSV


@dataclass(frozen=True, kw_only=True)
class PrepareReport:
    """The result of a preparation."""

    path: str
    rows: int
    train_rows: int
    test_rows: int
    bad_rows: int
    first_bad_rows: Sequence[BadRow]
    num_embeddings_per_feature: dict[str, int]
    digest: str
    encoding_digest: str
    bytes: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


def prepare(
    source: str | Sequence[str],
    out: Path,
    *,
    options: PrepareOptions | None = None,
    schema: FeatureSchema | None = None,
    on: str | None = None,
    progress: Callable[[int, int | None], None] = lambda _done, _total: None,
) -> PrepareReport:
    """Prepare the files that `source` names, one or several, into the folder `out`.

    Args:
        source: each is a file, a folder (with train/ and test/ in it or not) or a glob pattern.
        out: the output folder; refused if it has a dataset, unless the options allow to replace it.
        options: the options.
        schema: the features of the files; None for Criteo's columns, or those of `like`.
        on: the address of a Ray cluster that does the work; its nodes see all files under the same paths.
        progress: called with the bytes read so far and their total, in the size on disk.

    Raises:
        DataError: the source is missing or malformed, `out` has a dataset already, or `like` names no
            dataset with a usable encoding.
        BusyError: another `prepare` is writing into `out`.
        StorageError: `out` cannot be written.
    """
    require_extra()
    options = options or PrepareOptions()
    sources = [source] if isinstance(source, str) else source
    started = time.monotonic()
    known = _known(options)  # first: `out` may be that dataset
    if schema is None and (known is None or known.encoding.features is None):
        if on is not None:
            raise UsageError(
                "--on prepares tables with a feature schema, not Criteo's TSV files without names",
                remedy="leave --on out; or write a line of names, and describe the columns with --features",
            )
        if options.grow and known is not None and known.encoding.kind == "hash":
            raise UsageError(
                f"--grow adds values to a vocabulary, but {options.like} hashes its categories",
                remedy="leave --grow out: every value has an id by hash",
            )
        content, bad_rows = _prepare_criteo(sources, out, options, known=known, progress=progress)
    else:
        if options.grow and on is not None:
            raise UsageError("--grow works on one machine, and --on names a cluster", remedy="leave --on out")
        content, bad_rows = _prepare_tables(
            sources, out, options, schema, known=known, on=on, progress=progress
        )
    return _report(out, content, bad_rows, seconds=time.monotonic() - started)


def _known(options: PrepareOptions) -> KnownVocabulary | None:
    if options.like is None:
        return None
    from cloudrec.data.known_vocabulary import load  # noqa: PLC0415 - it loads numpy and the stores

    return load(options.like)


def _prepare_criteo(
    sources: Sequence[str],
    out: Path,
    options: PrepareOptions,
    *,
    known: KnownVocabulary | None,
    progress: Callable[[int, int | None], None],
) -> tuple[dict[str, Any], Sequence[BadRow]]:
    """Prepare TSV files with Criteo's columns; return the contents of dataset.json, and bad rows."""
    from cloudrec.data.prepare.folder import claimed  # noqa: PLC0415 - the next ones load numpy
    from cloudrec.data.prepare.pipeline import Preparation  # noqa: PLC0415 - as above
    from cloudrec.data.prepare.sources import find_sources, lack_labels  # noqa: PLC0415 - as above

    if remote := [each for each in sources if is_remote(each)]:
        raise UsageError(
            f"Criteo's TSV files are read from this machine's disk, but {remote[0]} is in a bucket",
            remedy="copy them; or describe columns with names by --features, which reads buckets",
        )
    files = find_sources(sources)
    for each in files:
        if each.path.name.endswith(_TABLES):
            raise DataError(
                f"{each.path} is no TSV file with Criteo's columns",
                remedy="describe its columns with --features FILE, or with `features:` in cloudrec.yaml "
                "(docs/features.md)",
            )
    unlabelled = options.labels == "optional" and lack_labels(files)
    with claimed(out, overwrite=options.overwrite) as workspace:
        run = Preparation(workspace, options, files, progress, known, unlabelled=unlabelled)
        content = run.run()
        workspace.commit(content, run.bad_rows.kept)
    return content, run.bad_rows.kept


def _prepare_tables(
    sources: Sequence[str],
    out: Path,
    options: PrepareOptions,
    schema: FeatureSchema | None,
    *,
    known: KnownVocabulary | None,
    on: str | None,
    progress: Callable[[int, int | None], None],
) -> tuple[dict[str, Any], Sequence[BadRow]]:
    """Prepare tables with a feature schema; return the contents of dataset.json, and bad rows."""
    require_extra("pyarrow")
    from cloudrec.data.prepare.folder import claimed  # noqa: PLC0415 - the next ones load Arrow
    from cloudrec.data.prepare.table_files import check_heads, find_tables, lacking_columns  # noqa: PLC0415 - as above
    from cloudrec.data.prepare.table_pipeline import TablePreparation, refuse_options, schema_like  # noqa: PLC0415 - as above

    if known is not None:
        schema = schema_like(known, schema)
    assert schema is not None  # noqa: S101 - for the type checker: the caller has one of both
    if on is not None and (remote := [each for each in sources if is_remote(each)]):
        raise UsageError(
            f"--on reads files that all nodes see under one path, but {remote[0]} is in a bucket",
            remedy="mount the bucket on the nodes, or leave --on out",
        )
    files = find_tables(sources)
    refuse_options(options, schema, files)
    absent = lacking_columns(files, schema) if options.labels == "optional" else ()
    check_heads(files, schema, absent=absent)  # before the folder is touched
    with claimed(out, overwrite=options.overwrite) as workspace:
        run = TablePreparation(
            workspace, options, files, schema, progress=progress, known=known, absent=absent
        )
        if on is None:
            content = run.run()
        else:
            from cloudrec.data.prepare.many.on_ray import ray_tasks  # noqa: PLC0415 - few need it
            from cloudrec.data.prepare.many.parts import make_job, prepare_parts  # noqa: PLC0415 - as above

            job = make_job(out, options, files, schema, absent)
            with ray_tasks(on) as machines:
                machines.check(job)
                content = prepare_parts(job, run, machines, known=known, progress=progress)
        workspace.commit(content, run.bad_rows)
    return content, run.bad_rows


def _report(
    out: Path, content: dict[str, Any], bad_rows: Sequence[BadRow], *, seconds: float
) -> PrepareReport:
    splits = content["splits"]
    vocabularies = {each["path"]: each["bytes"] for each in content["encoding"]["files"].values()}
    shards = [
        file for split in splits.values() for shard in split["shards"] for file in shard["files"].values()
    ]
    return PrepareReport(
        path=str(out),
        rows=content["rows"],
        train_rows=splits["train"]["rows"],
        test_rows=splits["test"]["rows"],
        bad_rows=content["bad_rows"],
        first_bad_rows=bad_rows[:_SHOWN_BAD_ROWS],
        num_embeddings_per_feature=content["num_embeddings_per_feature"],
        digest=content["digest"],
        encoding_digest=content["encoding"]["digest"],
        bytes=sum(each["bytes"] for each in shards) + sum(vocabularies.values()),
        seconds=seconds,
    )

"""The commands for data: synth, prepare, check, push."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from cloudrec.cli.console import announce, progress
from cloudrec.cli.options import CommandGroup, context, dry_run_option, output_option
from cloudrec.cli.output import emit, next_step
from cloudrec.data import require_extra
from cloudrec.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cloudrec.data.push import PushPlan

_FOLDER = click.Path(path_type=Path, file_okay=True)
_SHOWN = 12  # digits of a digest


@click.group(cls=CommandGroup)
def data() -> None:
    """Make, prepare, check and push training data."""


@data.command(short_help="Write Criteo-format files whose best possible AUC is known.")
@click.argument("out", type=_FOLDER)
@click.option("--rows", type=int, default=400_000, show_default=True, help="Training rows.")
@click.option(
    "--test-rows",
    type=int,
    help="Test rows  [default: a quarter of --rows, at least 1,000 and at most 200,000]",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Random seed of the teacher and the rows."
)
@click.option("--overwrite", is_flag=True, help="Overwrite the files of an earlier call.")
@output_option
def synth(out: Path, rows: int, test_rows: int | None, seed: int, *, overwrite: bool) -> None:
    """Write gzipped Criteo-format TSV files to OUT; their best possible AUC is known.

    OUT/synth.json has the AUC and logloss of the teacher that drew the labels (no model does better) and of
    the best model without interactions, both on the test rows.
    """
    require_extra()
    from cloudrec.data.synth.synth import synthesize  # noqa: PLC0415  # `--help` needs none of it

    _writes(out)
    with progress("writing", "rows") as update:
        made = synthesize(
            out, rows=rows, test_rows=test_rows, seed=seed, overwrite=overwrite, progress=update
        )
    text = (
        f"{made.rows:,} training and {made.test_rows:,} held-out rows in {out}\n"
        f"best AUC {made.bayes_auc:.4f} (logloss {made.bayes_logloss:.4f}), "
        f"best linear model AUC {made.linear_auc:.4f} (logloss {made.linear_logloss:.4f})"
    )
    emit({"synth": {"path": str(out), **made.to_json()}}, text)
    next_step(f"`cloudrec data prepare {shlex.quote(str(out))} OUT` encodes them for training")


@data.command(short_help="Convert files to the training format.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("out", type=_FOLDER)
@click.option(
    "--features",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML with the label, the dense and the sparse features of your files, or a spec with `features:`. "
    "Reads Parquet, CSV, TSV, JSON lines.  [default: `features` of ./cloudrec.yaml; else Criteo's columns]",
)
@click.option(
    "--like",
    metavar="DATASET|EXPORT",
    help="Use the vocabulary of this prepared dataset, or of this exported model (a folder or a URI). "
    "A value that is not in it counts as unknown.",
)
@click.option(
    "--grow", is_flag=True, help="With --like: add the new values of these rows; the ids of the others stay."
)
@click.option(
    "--forget-after",
    type=int,
    metavar="N",
    help="With --grow: a value that was in no training row of the last N preparations gives its id to a new "
    "one.  [default: never]",
)
@click.option(
    "--encoding",
    type=click.Choice(["vocabulary", "hash"]),
    default="vocabulary",
    show_default=True,
    help="vocabulary: one id per frequent value; hash: tables of a fixed size for any number of values.",
)
@click.option(
    "--min-frequency",
    type=int,
    default=3,
    show_default=True,
    help="Values that occur less often share one id.",
)
@click.option(
    "--hash-buckets",
    type=int,
    default=100_000,
    show_default=True,
    help="Rows of each table, with --encoding hash.",
)
@click.option(
    "--max-vocabulary",
    type=int,
    default=1 << 24,
    show_default=True,
    help="Most distinct values of a feature; with more, use --encoding hash.",
)
@click.option(
    "--test-fraction", type=float, default=0.1, show_default=True, help="Share of rows in the test split."
)
@click.option(
    "--max-bad-rows",
    type=int,
    default=0,
    show_default=True,
    help="Fail if more rows than this are malformed.",
)
@click.option(
    "--labels",
    type=click.Choice(["required", "optional"]),
    default="required",
    show_default=True,
    help="optional: files may have no label; such rows can only be scored.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed of the split.")
@click.option(
    "--on",
    metavar="ADDRESS",
    help="Prepare in a Ray cluster, ray://HOST:PORT, whose nodes see all files under the same paths; "
    "auto on one of its nodes. Needs a feature schema.",
)
@click.option("--overwrite", is_flag=True, help="Overwrite an existing dataset.")
@output_option
@click.pass_context
def prepare(
    click_context: click.Context,
    *,
    sources: tuple[str, ...],
    out: Path,
    features: Path | None,
    like: str | None,
    grow: bool,
    forget_after: int | None,
    encoding: str,
    min_frequency: int,
    hash_buckets: int,
    max_vocabulary: int,
    test_fraction: float,
    max_bad_rows: int,
    labels: str,
    seed: int,
    on: str | None,
    overwrite: bool,
) -> None:
    """Convert files (or folders, or a 'pattern*') to the training format at OUT.

    With --features, a SOURCE may be in a bucket: s3://BUCKET/FOLDER, gs://, abfs://.

    Without --features, they are Criteo TSV or TSV.gz. A folder with train/ and test/ has both splits;
    otherwise --test-fraction of the rows is the test split.

    Use --like to prepare more data for a trained model, such as the next day's. Without it, the same
    values get other ids, and the model scores them wrongly.
    """
    require_extra()
    from cloudrec.data.memory import keep_freed_memory  # noqa: PLC0415
    from cloudrec.data.prepare.options import ENCODING_OPTIONS, PrepareOptions, refusal_beside_like  # noqa: PLC0415
    from cloudrec.data.prepare.prepare import prepare as prepare_dataset  # noqa: PLC0415
    from cloudrec.data.schema_file import default_schema, load_schema  # noqa: PLC0415

    given = click_context.get_parameter_source
    chosen = [name for name in ENCODING_OPTIONS if given(name) is not ParameterSource.DEFAULT]
    if like is not None and chosen:
        raise refusal_beside_like(chosen)
    options = PrepareOptions(
        like=like,
        grow=grow,
        forget_after=forget_after,
        encoding="hash" if encoding == "hash" else "vocabulary",
        min_frequency=min_frequency,
        hash_buckets=hash_buckets,
        max_vocabulary=max_vocabulary,
        test_fraction=test_fraction,
        max_bad_rows=max_bad_rows,
        labels=labels,
        seed=seed,
        overwrite=overwrite,
    )
    schema = default_schema() if features is None and like is None else None
    if features is not None:
        schema = load_schema(features)
    keep_freed_memory()
    _writes(out, is_dataset=True)
    with progress("reading", "bytes") as update:
        report = prepare_dataset(sources, out, options=options, schema=schema, on=on, progress=update)
    for bad in report.first_bad_rows:
        announce(f"bad row {bad}")
    text = (
        f"{report.train_rows:,} training and {report.test_rows:,} held-out rows in {report.path} "
        f"({report.bytes:,} bytes), {report.bad_rows:,} bad rows left out\n"
        f"tables of {_range(report.num_embeddings_per_feature.values())} rows, encoding "
        f"{report.encoding_digest[:_SHOWN]}; {report.rows / max(report.seconds, 1e-9):,.0f} rows/s"
    )
    emit({"dataset": report.to_json()}, text)
    _next_with(str(out))


@data.command(short_help="Verify a prepared dataset.")
@click.argument("path", type=_FOLDER)
@click.option("--deep", is_flag=True, help="Read every file and verify checksums and id ranges.")
@output_option
def check(path: Path, *, deep: bool) -> None:
    """Verify the prepared dataset at PATH."""
    require_extra()
    from cloudrec.data.check import check as check_dataset  # noqa: PLC0415  # `--help` needs none of it

    try:
        path.stat()
    except (OSError, ValueError) as error:  # also a name that the file system cannot have
        reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        raise DataError(
            f"{path} {reason}", remedy="`cloudrec data prepare SRC OUT` creates a dataset"
        ) from error
    report = check_dataset(path, deep=deep)
    how = "every byte" if deep else "sizes and shapes; --deep reads every byte"
    unknown = "unknown (schema version 1 stores no vocabulary; prepare the data again to store it)"
    text = (
        f"{path} is valid: {report.rows:,} rows in {report.files} files, {report.bytes:,} bytes ({how})\n"
        f"encoding: {unknown if report.encoding_digest is None else report.encoding_digest[:_SHOWN]}"
    )
    emit({"dataset": report.to_json()}, text)
    _next_with(str(path))


@data.command(short_help="Upload a prepared dataset, for `train --dataset`.")
@click.argument("source", type=_FOLDER)
@click.argument("uri", required=False)
@click.option(
    "--cluster", metavar="NAME", help="Push to this cluster's storage  [default: the only cluster's]"
)
@click.option("--name", metavar="NAME", help="The dataset's name there  [default: the folder's name]")
@click.option("--overwrite", is_flag=True, help="Overwrite another dataset of that name.")
@dry_run_option
@output_option
def push(
    source: Path,
    uri: str | None,
    cluster: str | None,
    name: str | None,
    *,
    overwrite: bool,
    dry_run: bool,
) -> None:
    """Upload the prepared dataset at SOURCE to URI, or to a cluster's bucket, for `train --dataset`.

    Files that exist there with the right size and checksum are not sent again, so run an interrupted push
    again to continue it. Every file is verified after the upload; dataset.json is written last.
    """
    from cloudrec.app.data import push_dataset  # noqa: PLC0415  # `--help` needs none of it
    from cloudrec.cli.interrupted import in_hand  # noqa: PLC0415  # as above
    from cloudrec.cli.left_behind import UploadInHand  # noqa: PLC0415  # as above

    upload = UploadInHand()
    in_hand(upload.messages)

    @contextmanager
    def sending() -> Iterator[Callable[[int, int | None], None]]:
        with progress("sending", "bytes") as update:

            def advance(done: int, total: int | None) -> None:
                upload.sent = done
                update(done, total)

            yield advance

    def decide(plan: PushPlan) -> bool:
        if not dry_run:
            upload.uri, upload.files, upload.total = plan.uri, len(plan.send), plan.bytes
        announce(
            f"{len(plan.send):,} files ({plan.bytes:,} bytes) to send to {plan.uri}, "
            f"{len(plan.held):,} are there"
        )
        return not dry_run

    plan = push_dataset(
        context(),
        source,
        uri=uri,
        cluster_name=cluster,
        name=name,
        overwrite=overwrite,
        decide=decide,
        progress=sending,
    )
    what = "would be" if dry_run else "is"
    emit({"push": {**plan.to_json(), "dry_run": dry_run}}, f"{source} {what} at {plan.uri}")
    if dry_run:
        next_step("the same command without --dry-run sends them")
    else:
        next_step(f"`cloudrec train --dataset {shlex.quote(plan.dataset)}` trains with it")


def _writes(out: Path, *, is_dataset: bool = False) -> None:
    """Have Ctrl-C say what is in a folder."""
    from cloudrec.cli.interrupted import in_hand  # noqa: PLC0415  # `--help` needs none of it
    from cloudrec.cli.left_behind import FolderInHand  # noqa: PLC0415  # as above

    in_hand(FolderInHand(out=out, is_dataset=is_dataset).messages)


def _next_with(dataset: str) -> None:
    place = shlex.quote(dataset)
    next_step(
        f"`cloudrec train --dataset {place}` trains with it on this machine",
        f"`cloudrec data push {place}` sends it to a cluster's bucket",
    )


def _range(numbers: Iterable[int]) -> str:
    """Return "5" or "3 to 9"."""
    low, high = min(counts := list(numbers)), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"

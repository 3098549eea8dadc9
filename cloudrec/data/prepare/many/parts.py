"""The preparation of tables file by file, in tasks that may run on other machines.

    rows of each file -> values and sums of each file -> one vocabulary -> shards of each file

A task writes the shards that lie in its file, and leaves the rows of others as drafts, which are put together
at the end. Its files are moved into place when it is complete, so that a task can be repeated. All machines
see the files and the output folder under the same paths.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa

from cloudrec.data.format.shards import Disk
from cloudrec.data.prepare.folder import Workspace
from cloudrec.data.prepare.splits import sample_of
from cloudrec.data.prepare.table_files import read_batches
from cloudrec.data.prepare.table_pipeline import SPLITS, TablePreparation, moments_to_learn
from cloudrec.data.prepare.table_shards import (
    SplitWriter,
    joined,
    keep_draft,
    rows_in,
    take_draft,
    write_shard,
)
from cloudrec.data.prepare.table_values import require_few
from cloudrec.data.vocabulary import KnownVocabulary, read_files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from cloudrec.data.format import encoding
    from cloudrec.data.format.manifest import DatasetShard
    from cloudrec.data.prepare.folder import BadRow
    from cloudrec.data.prepare.options import PrepareOptions
    from cloudrec.data.prepare.splits import Sample
    from cloudrec.data.prepare.table_files import TableFile
    from cloudrec.data.prepare.table_pipeline import MomentsOfBatch
    from cloudrec.data.prepare.table_shards import Arrays
    from cloudrec_contract.features import FeatureSchema


class TaskRunner(Protocol):
    """Runs tasks."""

    def run(self, task: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """Call a function of a module once for each list of arguments; return the results in their order."""


@dataclass(frozen=True, kw_only=True)
class PartsJob:
    """What all tasks of a preparation know; its paths are absolute."""

    out: Path
    options: PrepareOptions
    files: Sequence[TableFile]
    schema: FeatureSchema
    absent: Sequence[str]
    first_test_time: float | None = None

    def preparation(self) -> TablePreparation:
        """Return a preparation in the output folder."""
        workspace = Workspace(out=self.out)
        made = TablePreparation(
            workspace, self.options, self.files, self.schema, progress=_quiet, absent=self.absent
        )
        made.first_test_time = self.first_test_time
        return made


@dataclass(frozen=True, kw_only=True)
class LearnedPart:
    """What a file's rows say."""

    rows: dict[str, int]  # good ones, by split
    bad_count: int
    bad_rows: Sequence[BadRow]  # the first ones
    counts: dict[str, pa.Table]  # of values, by table
    sums: Sequence[dict[str, MomentsOfBatch]]  # of each batch


@dataclass(kw_only=True)
class WrittenPart:
    """What a file's task has written."""

    positives: dict[str, npt.NDArray[np.int64]]  # of each label if there are several
    shards: dict[tuple[str, int], DatasetShard] = field(default_factory=dict)  # by split and number
    drafts: list[tuple[str, int]] = field(default_factory=list)


def count_rows(job: PartsJob, number: int) -> int:
    """Return the rows of a file, bad ones included."""
    return sum(each.num_rows for each in read_batches(job.files[number], job.schema, absent=job.absent))


def sample(job: PartsJob, number: int) -> Sample:
    """Return a sample of the times of a file's rows."""
    return sample_of(job.files[number], job.schema)


def learn(job: PartsJob, number: int, first_row: int, known: KnownVocabulary | None) -> LearnedPart:
    """Count the values of a file; with a known encoding, only its rows."""
    run, rows, sums = job.preparation(), dict.fromkeys(SPLITS, 0), []
    if known is None:
        run.begin_learning()
    else:
        run.use(known)
    with ThreadPoolExecutor(1) as pool:
        for made in run.encoded(pool, only=number, first_row=first_row):
            run.note(made)
            for split, found in made.splits.items():
                rows[split] += found.rows
            if "train" in made.splits:
                run.count(made.splits["train"])
                sums.append(run.sums(made.splits["train"]))
    return LearnedPart(
        rows=rows,
        bad_count=run.bad_count,
        bad_rows=run.bad_rows,
        counts={table: counter.counted() for table, counter in run.counters.items()},
        sums=sums,
    )


def write(
    job: PartsJob, number: int, first_row: int, before: dict[str, int], known: KnownVocabulary
) -> WrittenPart:
    """Encode a file; `before` are the rows of each split in the files before."""
    run, workspace = job.preparation(), Workspace(out=job.out)
    run.use(known)
    attempt = workspace.scratch / f"part-{number}-{uuid4().hex}"
    for split in SPLITS:
        (attempt / split).mkdir(parents=True)
    part = WrittenPart(positives={})
    with Disk(attempt) as disk, ThreadPoolExecutor(1) as pool:

        def put(split: str, shard: int, arrays: Arrays) -> None:
            if len(arrays["dense"]) == job.options.shard_rows:
                part.shards[split, shard] = write_shard(disk, split, shard, arrays)
            else:
                keep_draft(attempt / _draft(split, shard, number), arrays)
                part.drafts.append((split, shard))

        writers = {
            split: SplitWriter(
                partial(put, split),
                shard_rows=job.options.shard_rows,
                tasks=len(job.schema.tasks),
                before=before[split],
            )
            for split in SPLITS
        }
        for made in run.encoded(pool, only=number, first_row=first_row):
            for split, rows in made.splits.items():
                writers[split].add(rows)
        for split, writer in writers.items():
            writer.finish()
            part.positives[split] = writer.positives
        disk.finish()
    for split in SPLITS:
        for file in (attempt / split).iterdir():
            file.replace(workspace.staging / split / file.name)
    for file in attempt.glob("*.draft"):
        file.replace(workspace.scratch / file.name)
    return part


def prepare_parts(
    job: PartsJob,
    head: TablePreparation,
    machines: TaskRunner,
    *,
    known: KnownVocabulary | None,
    progress: Callable[[int, int | None], None],
) -> dict[str, Any]:
    """Prepare all files on machines; return the contents of dataset.json."""
    numbers = range(len(job.files))
    size = sum(each.bytes for each in job.files)
    first_rows = [0] * len(numbers)
    if head.needs_times:
        head.note_times(machines.run(sample, [(job, each) for each in numbers]))
    job = replace(job, first_test_time=head.first_test_time)
    is_by_number = job.options.test_fraction and job.schema.split is None
    if is_by_number and any(each.split is None for each in job.files):
        rows = machines.run(count_rows, [(job, each) for each in numbers])
        first_rows = list(accumulate(rows, initial=0))[:-1]
    first = [(job, number, first_rows[number]) for number in numbers]
    learned: list[LearnedPart] = machines.run(learn, [(*each, known) for each in first])
    progress(size // 2, size)
    _take_rows(head, learned)
    with Disk(Workspace(out=job.out).staging) as disk:
        if known is None:
            tables = _merged(job, head, learned, disk)
            known = KnownVocabulary(encoding=tables, files=read_files(Workspace(out=job.out).staging, tables))
        else:
            known.write(disk)
            tables = head.use(known)
        before = [
            {split: sum(each.rows[split] for each in learned[:number]) for split in SPLITS}
            for number in numbers
        ]
        written = machines.run(write, [(*each, before[each[1]], known) for each in first])
        splits = _splits(job, learned, written, disk)
        disk.finish()
    progress(size, size)
    return head.content(splits, tables)


def _take_rows(head: TablePreparation, learned: Sequence[LearnedPart]) -> None:
    for number, part in enumerate(learned):
        for bad in part.bad_rows:
            head.note_bad(bad)
        head.bad_count += part.bad_count - len(part.bad_rows)
        head.add_source(number, sum(part.rows.values()), part.bad_count)
    head.require_rows(sum(part.rows["train"] for part in learned))


def _merged(
    job: PartsJob, head: TablePreparation, learned: Sequence[LearnedPart], disk: Disk
) -> encoding.Encoding:
    """Write one vocabulary of all parts, and return the encoding."""
    counts = {}
    for table in learned[0].counts:
        every = pa.concat_tables([part.counts[table] for part in learned])
        grouped = every.group_by("value").aggregate([("count", "sum")])
        require_few(table, grouped.num_rows, job.options.max_vocabulary)
        counts[table] = pa.table({"value": grouped["value"], "count": grouped["count_sum"]})
    moments = moments_to_learn(job.schema)  # of batches in the order of one machine, to be rounded alike
    for part in learned:
        for batch in part.sums:
            for name, sums in batch.items():
                moments[name].add(sums)
    return head.learned(disk, counts, moments)


def _splits(
    job: PartsJob, learned: Sequence[LearnedPart], written: Sequence[WrittenPart], disk: Disk
) -> dict[str, Any]:
    """Put the drafts together, and return the splits of dataset.json."""
    scratch, splits = Workspace(out=job.out).scratch, {}
    shards = {key: shard for part in written for key, shard in part.shards.items()}
    for split in SPLITS:
        rows = sum(part.rows[split] for part in learned)
        for number in range(-(-rows // job.options.shard_rows)):
            if (split, number) in shards:
                continue
            files = [file for file, part in enumerate(written) if (split, number) in part.drafts]
            drafts = [rows_in(take_draft(scratch / _draft(split, number, file))) for file in files]
            shards[split, number] = write_shard(disk, split, number, joined(drafts))
        splits[split] = {
            "rows": rows,
            "positives": np.sum([part.positives[split] for part in written], axis=0).tolist(),
            "shards": [shards[key].to_json() for key in sorted(shards) if key[0] == split],
        }
    return splits


def absolute(files: Sequence[TableFile]) -> list[TableFile]:
    """Return files by their absolute paths."""
    return [each._replace(path=each.path.absolute()) for each in files if isinstance(each.path, Path)]


def unseen(job: PartsJob) -> list[str]:
    """Return the job's paths that this machine does not see, or sees with another size."""
    missing = [] if Workspace(out=job.out).staging.is_dir() else [str(job.out)]
    for file in job.files:
        found = -1
        with suppress(OSError):
            found = Path(str(file.path)).stat().st_size
        if found != file.bytes:
            missing.append(str(file.path))
    return missing


def make_job(
    out: Path,
    options: PrepareOptions,
    files: Sequence[TableFile],
    schema: FeatureSchema,
    absent: Sequence[str],
) -> PartsJob:
    """Return the job of a preparation; each of its tasks has one thread."""
    return PartsJob(
        out=out.absolute(),
        options=replace(options, threads=1),
        files=absolute(files),
        schema=schema,
        absent=absent,
    )


def _draft(split: str, shard: int, file: int) -> str:
    return f"{split}-{shard}-{file}.draft"


def _quiet(_done: int, _total: int | None) -> None:
    pass

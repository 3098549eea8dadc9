"""What this machine can do: steps that the trainer timed on it, and the constants that fit them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec.errors import PreflightError, UsageError
from cloudrec.home import make_private, read_text, write_atomically
from cloudrec.planning.fit.cpu import CpuRates, MeasuredStep, fit_rates
from cloudrec.planning.fit.layers import LayerSizes, dense_work
from cloudrec.planning.fit.work import TrainingWork
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.app.context import AppContext

# 2: the constants are of other amounts of work. 3: the trainer's step on a CPU became a quarter faster.
VERSION = 3
NAME = "calibration.json"
MOST_RANKS = 2
_SECONDS = {1: 22.0, 2: 32.0}  # by the number of ranks, with their start
_TIMEOUT_S = 300.0  # a busy machine is slow
_SHOWN = 500
_MOST_CHARACTERS = 40  # of the date
_MOST_BYTES, _MOST_CORES = 1 << 50, 1 << 16  # beyond any machine
_SHORTEST_S, _LONGEST_S = 1e-12, 1e6
_IN_EACH_STEP = ("fixed", "tables", "products", "samples")  # parts that no step is without
_GOOD_FIT = 0.2  # an idle machine of two cores fitted within 0.06 to 0.19, a disturbed one within 0.26
_REMEDY = "run `cloudrec plan --calibrate` again"


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was measured on this machine.

    Attributes:
        as_of: the date.
        cores: the processor's cores.
        memory_bytes: of this machine.
        baseline_bytes: of a rank that has a tiny model, by the number of ranks.
        rates: the constants, by the number of ranks.
        measured: what the trainer printed, by the number of ranks, so that constants can be fitted again.
    """

    as_of: str
    cores: int
    memory_bytes: int
    baseline_bytes: Mapping[int, int]
    rates: Mapping[int, CpuRates]
    measured: Sequence[Mapping[str, Any]]


def calibrate(app: AppContext) -> Calibration:
    """Time the trainer's steps on this machine, and keep the constants in the home.

    Raises:
        PreflightError: the trainer cannot run here.
    """
    ranks = [count for count in range(1, MOST_RANKS + 1) if count <= len(os.sched_getaffinity(0))]
    measured = []
    for count in ranks:
        app.report(f"timing the trainer with {count} rank{'s'[: count - 1]} for {_SECONDS[count]:.0f} s")
        measured.append(_measure(count))
    found = calibration_of(measured, f"{datetime.now(UTC):%Y-%m-%d}")
    app.report(fit_quality(found.rates))
    make_private(app.home.root)
    document = {
        "version": VERSION,
        "as_of": found.as_of,
        "memory_bytes": found.memory_bytes,
        "rates": [asdict(each) for each in found.rates.values()],
        "measured": list(found.measured),
    }
    write_atomically(app.home.root / NAME, json.dumps(document))
    return found


def fit_quality(rates: Mapping[int, CpuRates]) -> str:
    """Return how well the constants fit what was timed, and a remedy if that is badly."""
    worst = max(each.misfit for each in rates.values())
    text = f"the constants fit the timed steps within {worst:.0%}"
    if worst <= _GOOD_FIT:
        return text
    return f"{text}: if this machine did something else meanwhile, {_REMEDY}"


def kept_calibration(app: AppContext) -> Calibration | None:
    """Return what was measured on this machine; None if nothing was.

    Raises:
        UsageError: the record is damaged, or of another version.
    """
    path = app.home.root / NAME
    try:
        document = safe_object(read_text(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}", remedy=_REMEDY) from error
    if document.get("version") != VERSION:
        raise UsageError(
            f"{path} has version {document.get('version')!r}, and this cloudrec reads {VERSION}",
            remedy=_REMEDY,
        )
    try:
        return _parsed(document)
    except KeyError as error:
        raise UsageError(f"{path} lacks {error}", remedy=_REMEDY) from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(f"{path} is damaged: {error}", remedy=_REMEDY) from error


def calibration_of(measured: Sequence[Mapping[str, Any]], as_of: str) -> Calibration:
    """Fit the constants to what the trainer printed for each number of ranks."""
    rates = {int(each["ranks"]): fitted(each) for each in measured}
    return _calibration(measured, rates, as_of, _memory_bytes())


def fitted(document: Mapping[str, Any]) -> CpuRates:
    """Return the constants that fit what the trainer printed for one number of ranks."""
    steps = [
        MeasuredStep(
            work=measured_work(each),
            seconds=[_positive(value) for value in each["seconds"]],
        )
        for each in document["models"]
    ]
    return fit_rates(steps, int(document["ranks"]), int(document["cache_bytes"]))


def measured_work(model: Mapping[str, Any]) -> TrainingWork:
    """Return the work of a model that trainer.commands.calibrate has timed."""
    tables, dim = int(model["tables"]), int(model["dim"])
    sizes = LayerSizes(
        num_dense=13,
        vectors=[dim] * tables,
        bottom=[int(each) for each in model["bottom"]],
        top=[int(each) for each in model["top"]],
        interaction=str(model["interaction"]),
        cross_rank=int(model["cross_rank"]),
    )
    return TrainingWork(
        table_rows=[int(model["rows"])] * tables,
        dim=dim,
        ids=float(tables * int(model["hotness"])),
        dense=dense_work("dlrm", sizes),
        batch=int(model["batch"]),
    )


def _parsed(document: Mapping[str, Any]) -> Calibration:
    measured = list(document["measured"])
    rates = {each.ranks: each for each in map(_rates, document["rates"])}
    if not rates or not rates.keys() <= {each["ranks"] for each in measured}:
        raise ValueError("constants and measurements are not of the same numbers of ranks")
    as_of = str(document["as_of"])
    if not as_of.isprintable() or len(as_of) > _MOST_CHARACTERS:
        raise ValueError(f"the date {as_of[:_MOST_CHARACTERS]!r}")
    found = _calibration(measured, rates, as_of, _whole(document["memory_bytes"], 1, _MOST_BYTES))
    for count in (found.cores, *found.baseline_bytes.values()):
        _whole(count, 0, _MOST_BYTES)
    return found


def _rates(document: Mapping[str, Any]) -> CpuRates:
    constants = {str(name): _positive(value) for name, value in document["constants"].items()}
    if sum(constants.get(name, 0.0) for name in _IN_EACH_STEP) < _SHORTEST_S:
        raise ValueError("a step takes no time")
    return CpuRates(
        ranks=_whole(document["ranks"], 1, _MOST_CORES),
        cache_bytes=_whole(document["cache_bytes"], 0, _MOST_BYTES),
        constants=constants,
        misfit=_positive(document["misfit"]),
    )


def _whole(value: object, least: int, most: int) -> int:
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"the number {str(value)[:_SHOWN]}, which is not from {least} to {most}")
    return value


def _calibration(
    measured: Sequence[Mapping[str, Any]], rates: Mapping[int, CpuRates], as_of: str, memory_bytes: int
) -> Calibration:
    return Calibration(
        as_of=as_of,
        cores=int(measured[0]["cores"]),
        memory_bytes=memory_bytes,
        baseline_bytes={
            # The first model is tiny: what it needs is what libraries take once they run.
            int(each["ranks"]): int(each["baseline_bytes"]) + int(each["models"][0]["rss_bytes"])
            for each in measured
        },
        rates=rates,
        measured=measured,
    )


def _positive(value: object) -> float:
    number = float(str(value))
    if not 0 <= number <= _LONGEST_S:  # also for NaN
        raise ValueError(f"the number {str(value)[:_SHOWN]}, which is not from 0 to {_LONGEST_S:g}")
    return number


def _measure(ranks: int) -> dict[str, Any]:
    """Run the trainer's command on so many ranks, and return what it printed."""
    command = [sys.executable, "-P"]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += ["-m", "trainer.calibrate", "--json", "--seconds", f"{_SECONDS[ranks]:g}"]
    threads = max(1, (os.cpu_count() or 1) // ranks)
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise PreflightError(
            f"the measurement with {ranks} ranks has not ended after {_TIMEOUT_S:g} s",
            remedy="run it when this machine does nothing else",
        ) from error
    if done.returncode != 0:
        cause = done.stderr[-_SHOWN:].strip()
        raise PreflightError(
            f"the measurement with {ranks} ranks ended with {done.returncode}: {cause}",
            remedy="install the trainer: pip install 'cloudrec[trainer-cpu]'",
        )
    try:
        return safe_object(done.stdout.strip().rpartition("\n")[2])
    except ValueError as error:
        raise PreflightError(
            f"the measurement with {ranks} ranks printed no result: {error}",
            remedy="install the trainer of this cloudrec's version: pip install 'cloudrec[trainer-cpu]'",
        ) from error


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

"""The steps of small models, timed on this machine: what `cloudrec plan --calibrate` fits its constants to.

Every model is a session of the training loop, with its reader, checks and optimizers, and its files are in a
temporary folder. The models take turns, so that a slow moment of the machine affects all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import ExitStack, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

from trainer.base.arguments import make_config
from trainer.base.console import guarded, importing_torch
from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainer.base.distributed import World
    from trainer.loop.pipeline import TrainStep
    from trainer.loop.session.session import Session

VERSION = 1
FEATURES, DENSE = 26, 13
_MADE_UP = "trainer.data.formats.synthetic:made_up"
_BAG_ROWS = 16_384  # samples of a dataset with several ids a feature
_ENDLESS = 1_000_000
_READ_AHEAD = 2
_WARM_STEPS = _READ_AHEAD + 2  # their batches were read before the turn, and caches are cold
_TURN_S = 0.15
_MOST_STEPS = 100
_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, kw_only=True)
class TimedModel:
    """A model to time.

    Attributes:
        tables: the number of tables.
        rows: of each table.
        dim: the width of a row.
        batch: samples of a rank's step.
        bottom: the bottom MLP.
        top: the top MLP.
        interaction: dot or dcn.
        cross_rank: of a cross's matrices.
        hotness: ids of a feature.
    """

    tables: int = FEATURES
    rows: int
    dim: int
    batch: int
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    interaction: str = "dot"
    cross_rank: int = 64
    hotness: int = 1


# They differ in each part of a step: products, pairs, rows in and out of caches, ids, dense parameters.
MODELS = (
    TimedModel(tables=4, rows=1_000, dim=16, batch=128, bottom=(16,), top=(16, 1)),
    TimedModel(tables=26, rows=2_000, dim=16, batch=2048, bottom=(32, 16), top=(32, 1)),
    TimedModel(tables=26, rows=20_000, dim=64, batch=512, bottom=(512, 256, 64), top=(512, 256, 1)),
    TimedModel(tables=26, rows=30_000, dim=32, batch=2048, bottom=(64, 32), top=(128, 64, 1)),
    TimedModel(tables=8, rows=2_000, dim=64, batch=512, bottom=(1024, 512, 64), top=(1024, 512, 1)),
    TimedModel(tables=8, rows=50_000, dim=128, batch=1024, bottom=(128,), top=(64, 1)),
    TimedModel(tables=26, rows=5_000, dim=128, batch=256, bottom=(256, 128), top=(512, 256, 1)),
    TimedModel(tables=4, rows=5_000, dim=32, batch=64, bottom=(1024, 512, 32), top=(1024, 1024, 1)),
    TimedModel(tables=26, rows=2_000, dim=32, batch=512, bottom=(128, 32), top=(256, 1), interaction="dcn"),
    TimedModel(
        tables=12, rows=10_000, dim=64, batch=512, bottom=(256, 64), top=(256, 1), interaction="dcn",
        cross_rank=256,
    ),
    TimedModel(tables=26, rows=5_000, dim=16, batch=1024, bottom=(64, 16), top=(64, 1), hotness=5),
    TimedModel(tables=26, rows=20_000, dim=64, batch=256, bottom=(64,), top=(64, 1), hotness=10),
    TimedModel(tables=16, rows=5_000, dim=32, batch=4096, bottom=(128, 32), top=(256, 128, 1)),
    # Little but rows that caches do not hold, wide and narrow.
    TimedModel(tables=26, rows=40_000, dim=64, batch=256, bottom=(64,), top=(64, 1), hotness=4),
    TimedModel(tables=26, rows=55_000, dim=16, batch=512, bottom=(64, 16), top=(256, 64, 1)),
    # Little but vectors, and little but samples.
    TimedModel(tables=16, rows=4_000, dim=128, batch=768, bottom=(128,), top=(128, 1)),
    TimedModel(tables=8, rows=100_000, dim=16, batch=4096, bottom=(32, 16), top=(64, 1)),
)  # fmt: skip


class _CalibrationParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; `python -m trainer.calibrate --help` lists the flags")


def main(argv: Sequence[str]) -> int:
    """Time the models and print the result as JSON; return the exit code of the process."""
    return guarded(lambda: _main(argv))


def _main(argv: Sequence[str]) -> int:
    parser = _CalibrationParser(
        prog="python -m trainer.calibrate",
        description="Time steps of small models on this machine, as one rank or under torchrun.",
        epilog="Exit codes: 0 timed, 64 bad flags, 1 anything else.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="for the whole [20]")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="[cpu]")
    given = parser.parse_args(argv)
    started = time.perf_counter()
    with importing_torch():
        from trainer.base.distributed import join_world  # noqa: PLC0415 - torch takes seconds to import
    with TemporaryDirectory() as folder, join_world(given.device) as world:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            document = _measure(world, Path(folder), started=started, seconds=given.seconds)
        if world.is_first:
            print(json.dumps(document) if given.json else _lines(document))
    return 0


def _lines(document: dict[str, Any]) -> str:
    return "\n".join(
        f"{each['tables']} x {each['rows']:,} x {each['dim']}, batch {each['batch']:,}: "
        f"{sorted(each['seconds'])[len(each['seconds']) // 2] * 1e3:.2f} ms"
        for each in document["models"]
    )


class _Running:
    """A model whose steps are timed, in turns with others."""

    def __init__(self, sizes: TimedModel, session: Session, rss_bytes: int) -> None:
        self.sizes = sizes
        self.seconds: list[float] = []
        self.rss_bytes = rss_bytes
        self._session = session
        self._steps: Iterator[TrainStep] = session.steps()

    def turn(self, steps: int) -> list[float]:
        """Return the seconds of so many steps; as in a run, the time between steps is not in them."""
        taken = []
        for _ in range(steps):
            begun = time.perf_counter()
            step = next(self._steps)
            self._session.advance(step)
            taken.append(time.perf_counter() - begun)
            self._session.agree()
        return taken

    def close(self) -> None:
        """End the reader's thread."""
        self._steps.close()  # type: ignore[attr-defined] # a generator


def _measure(world: World, folder: Path, *, started: float, seconds: float) -> dict[str, Any]:
    import torch  # noqa: PLC0415 - torch takes seconds to import

    baseline = _resident_bytes()
    with ExitStack() as stack:
        running = []
        for number, sizes in enumerate(MODELS):
            before = _resident_bytes()
            each = stack.enter_context(_opened(sizes, world, folder / f"{number}"))
            model = _Running(sizes, each, 0)
            stack.callback(model.close)
            model.turn(_WARM_STEPS)
            model.rss_bytes = _resident_bytes() - before
            running.append(model)
        _take_turns(running, world, until=started + seconds)
        return {
            "version": VERSION,
            "device": world.device.type,
            "ranks": world.size,
            "threads": torch.get_num_threads(),
            "cores": len(os.sched_getaffinity(0)),
            "cache_bytes": cache_bytes(),
            "baseline_bytes": baseline,
            "models": [
                {**asdict(each.sizes), "seconds": each.seconds, "rss_bytes": each.rss_bytes}
                for each in running
            ],
        }


def _take_turns(running: Sequence[_Running], world: World, *, until: float) -> None:
    """Run every model for a moment, again and again; all ranks do as many steps."""
    counts = []
    for each in running:
        one = max(world.sum([each.turn(1)[0]])[0] / world.size, 1e-4)
        counts.append(max(3, min(round(_TURN_S / one), _MOST_STEPS)))
    round_s = 0.0
    while not round_s or world.sum([float(time.perf_counter() + round_s < until)])[0] == world.size:
        begun = time.perf_counter()
        for each, count in zip(running, counts, strict=True):
            each.seconds += each.turn(_WARM_STEPS + count)[_WARM_STEPS:]
        round_s = time.perf_counter() - begun


def _opened(sizes: TimedModel, world: World, folder: Path) -> Any:  # noqa: ANN401 - a context of a session
    from trainer.loop.session.opening import open_session  # noqa: PLC0415 - torch takes seconds to import

    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "num_iterations": _ENDLESS,
        "log_interval": _ENDLESS,
        "batch_size": sizes.batch,
        "embedding_dim": sizes.dim,
        "num_embeddings_per_feature": [sizes.rows] * sizes.tables,
        "dense_arch_layer_sizes": list(sizes.bottom),
        "over_arch_layer_sizes": list(sizes.top),
        "interaction": sizes.interaction,
        "dcn_low_rank_dim": sizes.cross_rank,
        "model_digest": False,
        "read_ahead": _READ_AHEAD,
        "sharding_types": ["table_wise"],  # what the search for a plan finds, too, but in 0.3 s a model
        "device": world.device.type,
    }
    if sizes.hotness == 1:
        settings["dataset"] = _MADE_UP
    else:
        settings |= {
            "dataset_path": str(folder.parent / f"bags-{world.rank}-{folder.name}"),
            "num_epochs": _ENDLESS,
        }
        write_bags(Path(settings["dataset_path"]), sizes.rows, sizes.hotness)
    folder.mkdir(parents=True)
    return open_session(make_config(settings), world)


def write_bags(folder: Path, rows: int, hotness: int, samples: int = _BAG_ROWS) -> None:
    """Write made-up samples with several ids a feature, in MLPerf's format."""
    import numpy as np  # noqa: PLC0415 - a command's start needs none of it

    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for day, count in enumerate((samples, 2048)):
        ids = np.power(rows + 1.0, random.random((FEATURES, count, hotness))) - 1.0
        np.save(folder / f"day_{day}_dense.npy", random.random((count, DENSE), dtype=np.float32))
        np.save(folder / f"day_{day}_labels.npy", random.integers(0, 2, (count, 1), dtype=np.int32))
        members = {str(each): np.minimum(ids[each], rows - 1).astype(np.int32) for each in range(FEATURES)}
        np.savez(folder / f"day_{day}_sparse_multi_hot.npz", **members)


def cache_bytes() -> int:
    """Return the size of the processor's largest cache; 0 if the system does not show it."""
    found = [0]
    for size in _CACHE.glob("index*/size"):
        text = size.read_text(encoding="ascii").strip()
        if text[-1:] in _UNITS and text[:-1].isdigit():
            found.append(int(text[:-1]) * _UNITS[text[-1]])
    return max(found)


def _resident_bytes() -> int:
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


__all__ = ["MODELS", "TimedModel", "main", "write_bags"]

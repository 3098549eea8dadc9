"""The warm start: fills a learner whose state was drawn with what an earlier model has of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import distributed

from trainer.base.errors import CheckpointError, ConfigError, PeerError
from trainer.checkpoint.vocabulary import in_folder
from trainer.warm.dense_map import places_of_inputs
from trainer.warm.row_map import NoMatchError, TableRows, TableValues, match_numbers, match_rows
from trainer.warm.source import open_earlier

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from trainer.base.config import TrainerConfig
    from trainer.base.distributed import World
    from trainer.base.entry import Entry, State
    from trainer.data.source import SampleSource
    from trainer.models.model import ModelShape
    from trainer.warm.row_map import RowMap
    from trainer.warm.source import EarlierModel

BLOCK_ROWS = 1 << 16  # rows of an earlier table in memory at once
_SHOWN = 5  # names in a line
_TABLE = "tables/"
_MANAGED = "managed/"
_DENSE = "dense/"
_OPTIMIZER = "dense_optimizer/"


@dataclass(slots=True)
class WarmReport:
    """What a run took from an earlier model.

    Attributes:
        place: the earlier model.
        step: its step.
        rows: the rows of the new tables.
        kept_rows: those that have the values of a row of the earlier model.
        tables: the tables that began with such rows.
        fresh_tables: the other ones, and why.
        parameters: the parameters of the dense part that were taken.
        fresh_parameters: the other ones, and why.
        optimizer: whether the states of the optimizers were taken, too.
        dropped: the tables of the earlier model that this one has not.
    """

    place: str
    step: int
    rows: int = 0
    kept_rows: int = 0
    tables: list[str] = field(default_factory=list)
    fresh_tables: dict[str, str] = field(default_factory=dict)
    parameters: list[str] = field(default_factory=list)
    fresh_parameters: dict[str, str] = field(default_factory=dict)
    optimizer: bool = False
    dropped: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield the report, for people."""
        states = "with" if self.optimizer else "without"
        yield (
            f"begins with {self.place}: {self.kept_rows:,} of {self.rows:,} rows in {len(self.tables)} "
            f"tables, {len(self.parameters)} of {len(self.parameters) + len(self.fresh_parameters)} dense "
            f"parameters, {states} optimizer states"
        )
        for kind, fresh in (("table", self.fresh_tables), ("parameter", self.fresh_parameters)):
            for name, why in list(fresh.items())[:_SHOWN]:
                yield f"  new {kind} {name}: {why}"
            if len(fresh) > _SHOWN:
                yield f"  and {len(fresh) - _SHOWN} more new {kind}s"
        if self.dropped:
            more = f" and {len(self.dropped) - _SHOWN} more" if len(self.dropped) > _SHOWN else ""
            yield f"  not used: table {', '.join(self.dropped[:_SHOWN])}{more}"


def begin_with(
    state: State, shape: ModelShape, config: TrainerConfig, dataset: SampleSource, world: World
) -> WarmReport:
    """Fill a drawn state with the rows and layers of `config.init_from`; collective.

    Args:
        state: this rank's tensors, for writing.
        shape: the sizes of the new model.
        config: the run's settings.
        dataset: the data of the run, whose encoding has the values of rows.
        world: the ranks.

    Raises:
        ConfigError: on all ranks: the model is of no use here, or a name in `init_map` is unknown.
        CheckpointError: on all ranks: the model cannot be read.
    """
    error: Exception | None = None
    report: WarmReport | None = None
    step = config.init_step
    try:
        step = _agreed_step(config, world)
        model = open_earlier(_source(config), step, check=False)
        report = _WarmStart(model, state, shape, config, dataset).run()
    except (ConfigError, CheckpointError) as found:
        error = found
    failed = world.sum([float(error is not None)])[0]
    if error is not None:
        raise error
    if failed or report is None:
        raise PeerError("another rank could not read the model in init_from; that rank's message says why")
    return report


def _agreed_step(config: TrainerConfig, world: World) -> int | None:
    """Return the step that rank 0 has found and verified, on all ranks."""
    answer: list[int | Exception | None] = [None]
    if world.is_first:
        try:
            answer = [open_earlier(_source(config), config.init_step).step]
        except (ConfigError, CheckpointError) as error:
            answer = [error]
    if world.size > 1:
        distributed.broadcast_object_list(answer, src=0, group=world.control)
    found = answer[0]
    if isinstance(found, Exception):
        raise found
    return found


def _source(config: TrainerConfig) -> str:
    assert config.init_from is not None  # noqa: S101 - for the type checker: the caller asks
    return config.init_from


class _WarmStart:
    def __init__(
        self,
        model: EarlierModel,
        state: State,
        shape: ModelShape,
        config: TrainerConfig,
        dataset: SampleSource,
    ) -> None:
        self._model = model
        self._state = state
        self._shape = shape
        self._config = config
        self._dataset = dataset
        self._names = config.init_map
        self._report = WarmReport(model.place, model.step, optimizer=config.init_optimizer)

    @torch.no_grad()
    def run(self) -> WarmReport:
        self._check_names()
        old, new = self._values()
        taken: set[str] = set()
        for table, rows in self._shape.num_embeddings.items():
            self._report.rows += rows
            source = self._renamed(f"{_TABLE}{table}").removeprefix(_TABLE)
            try:
                found = self._match(table, source, old, new)
            except NoMatchError as error:
                self._report.fresh_tables[table] = str(error)
                continue
            if table in self._shape.managed:
                self._fill_managed(table, source)
            self._fill_table(table, source, found)
            self._report.tables.append(table)
            self._report.kept_rows += found.kept
            taken.add(source)
        self._report.dropped = [each for each in self._model.shape.num_embeddings if each not in taken]
        self._fill_dense()
        if not self._report.tables:
            table, why = next(iter(self._report.fresh_tables.items()))
            raise ConfigError(
                f"init_from {self._model.place}: has the rows of no table of this model (of {table}: {why}); "
                "give another model, or name its tables in init_map"
            )
        return self._report

    def _renamed(self, name: str) -> str:
        return self._names.get(name, name)

    def _check_names(self) -> None:
        parts = {f"{_TABLE}{each}" for each in self._shape.num_embeddings} | {
            each for each in self._state if each.startswith(_DENSE)
        }
        theirs = {f"{_TABLE}{each}" for each in self._model.shape.num_embeddings} | {
            each for each in self._model.names if each.startswith(_DENSE)
        }
        for ours, other in self._names.items():
            for name, known, where in ((ours, parts, "this model"), (other, theirs, self._model.place)):
                if name not in known:
                    shown = ", ".join(sorted(known)[:_SHOWN])
                    raise ConfigError(f"init_map names {name}, which {where} has not; it has {shown}, ...")

    def _values(self) -> tuple[TableValues | None, TableValues | None]:
        """Return what the ids of both models stand for; None if the data's encoding is unknown."""
        folder, encoding, theirs = self._dataset.vocabulary_at, self._dataset.encoding, self._model.vocabulary
        if self._config.init_match == "number":
            return None, None
        if encoding is None or theirs is None:
            whose = "this run's data" if encoding is None else self._model.place
            raise ConfigError(
                f"init_from {self._model.place}: the values of its rows cannot be compared, since the "
                f"encoding of {whose} is unknown; prepare the data with `cloudrec data prepare`, or if equal "
                "ids have equal values in both, set init_match to number"
            )
        own = None if folder is None else in_folder(folder, encoding)
        return (
            TableValues(theirs.encoding, theirs, self._model.shape.tables_of_features),
            TableValues(encoding, own, self._shape.tables_of_features),
        )

    def _match(self, table: str, source: str, old: TableValues | None, new: TableValues | None) -> RowMap:
        theirs = self._model.shape
        if source not in theirs.num_embeddings:
            raise NoMatchError(f"the earlier model has no table {source}")
        if theirs.dim(source) != self._shape.dim(table):
            raise NoMatchError(f"its vectors have {self._shape.dim(table)} values, not {theirs.dim(source)}")
        rows = self._shape.num_embeddings[table]
        if table in self._shape.managed and rows < theirs.num_embeddings[source]:
            raise NoMatchError(f"it has fewer rows than the earlier table, {theirs.num_embeddings[source]:,}")
        if (table in self._shape.managed) != (source in theirs.managed):
            raise NoMatchError("only one of both has encoding managed_collision")
        if old is None or new is None:
            return match_numbers(theirs.num_embeddings[source], rows)
        return match_rows(TableRows(old, source, theirs.num_embeddings[source]), TableRows(new, table, rows))

    def _fill_table(self, table: str, source: str, found: RowMap) -> None:
        """Copy the rows of the earlier table that this rank has, a block at a time."""
        parts = ["weight"]
        if self._config.init_optimizer:
            parts += self._states_of(table, source)
        for part in parts:
            entry = self._state[f"{_TABLE}{table}/{part}"]
            if not entry.shards:
                continue
            for start in range(0, len(found.rows), BLOCK_ROWS):
                places = found.rows[start : start + BLOCK_ROWS]
                if _touches(entry, places):
                    values = self._model.rows(source, part, start, start + len(places))
                    _put(entry, places, values)

    def _fill_managed(self, table: str, source: str) -> None:
        """Take the ids of a managed table's rows; they count as occurred before the first step."""
        for part in ("ids", "counts"):
            (shard,) = self._state[f"{_MANAGED}{table}/{part}"].shards
            name = f"{_MANAGED}{source}/{part}"
            # An export has no counts: each id has then occurred once.
            values = self._model.whole(name if name in self._model.names else f"{_MANAGED}{source}/ids")
            if name not in self._model.names:
                values = (values != 0).to(values.dtype)
            shard.tensor[: len(values)].copy_(values)

    def _states_of(self, table: str, source: str) -> list[str]:
        """Return the names of a table's optimizer states; ConfigError if the earlier model has others."""
        prefix = f"{_TABLE}{table}/"
        states = [name.removeprefix(prefix) for name in self._state if name.startswith(prefix)]
        states.remove("weight")
        for state in states:
            if f"{_TABLE}{source}/{state}" not in self._model.names:
                raise ConfigError(
                    f"init_optimizer: {self._model.place} has no {state} of {source}: it is an export, or "
                    f"had another table_optimizer than {self._config.table_optimizer}; leave "
                    "init_optimizer out"
                )
        return states

    def _fill_dense(self) -> None:
        places = places_of_inputs(self._model.shape, self._shape)
        for name, entry in self._state.items():
            if not name.startswith(_DENSE):
                continue
            own, source = name.removeprefix(_DENSE), self._renamed(name)
            kept = {} if places is None else places.get(own, {})
            why = self._copy_whole(source, entry, kept)
            if why is not None:
                self._report.fresh_parameters[own] = why
                continue
            self._report.parameters.append(own)
            if self._config.init_optimizer:
                self._fill_states(own, source.removeprefix(_DENSE), kept)

    def _fill_states(self, own: str, source: str, kept: Mapping[int, Tensor]) -> None:
        prefix = f"{_OPTIMIZER}{own}/"
        for name, entry in self._state.items():
            if name.startswith(prefix):
                theirs = f"{_OPTIMIZER}{source}/{name.removeprefix(prefix)}"
                if (why := self._copy_whole(theirs, entry, kept)) is not None:
                    raise ConfigError(
                        f"init_optimizer: {self._model.place} has no state {theirs} of this kind: {why}; "
                        "leave init_optimizer out"
                    )

    def _copy_whole(self, source: str, entry: Entry, kept: Mapping[int, Tensor]) -> str | None:
        """Copy a replicated tensor; return why it stays as it was drawn, None if it was copied.

        `kept` has the place that each input had before, by dimension.
        """
        if source not in self._model.names:
            return f"the earlier model has no {source}"
        values = self._model.whole(source)
        (shard,) = entry.shards
        target = shard.tensor.detach()
        here = {dimension: places for dimension, places in kept.items() if dimension < target.dim()}
        if not here:
            if tuple(values.shape) != tuple(target.shape):
                return f"its shape is {list(target.shape)}, the earlier one {list(values.shape)}"
            target.copy_(values)
            return None
        ((dimension, places),) = here.items()
        rest = [size for each, size in enumerate(target.shape) if each != dimension]
        if rest != [size for each, size in enumerate(values.shape) if each != dimension]:
            return f"its shape is {list(target.shape)}, the earlier one {list(values.shape)}"
        old = places >= 0
        chosen = values.to(target.device, target.dtype).index_select(dimension, places[old].to(target.device))
        target.index_copy_(dimension, torch.nonzero(old).view(-1).to(target.device), chosen)
        return None


def _touches(entry: Entry, places: Tensor) -> bool:
    """Whether this rank has one of these rows."""
    return any(bool(_inside(shard.offsets[0], shard.tensor.shape[0], places).any()) for shard in entry.shards)


def _inside(first: int, rows: int, places: Tensor) -> Tensor:
    return (places >= first) & (places < first + rows)


def _put(entry: Entry, places: Tensor, values: Tensor) -> None:
    """Copy rows to their places in this rank's shards; places are those in the whole table, or -1."""
    for shard in entry.shards:
        target = shard.tensor.detach()
        first = shard.offsets[0]
        mine = _inside(first, target.shape[0], places)
        chosen = values[mine]
        if target.dim() > 1:
            left = shard.offsets[1]
            chosen = chosen[:, left : left + target.shape[1]]
        numbers = (places[mine] - first).to(target.device)
        target.index_copy_(0, numbers, chosen.to(target.device, target.dtype))

"""The earlier model: a checkpoint, or an export, read a block of rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from trainer.base.entry import Entry, TensorShard
from trainer.base.errors import ConfigError
from trainer.base.location import is_local, local_path
from trainer.checkpoint.load.reading import open_committed
from trainer.checkpoint.vocabulary import kept_in
from trainer.data.encoding import of_model
from trainer.serving.exported import is_export, read_export
from trainer.serving.scorer import model_of
from trainer.sharding.state import InitialTables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from trainer.checkpoint.load.reading import CommittedCheckpoint
    from trainer.checkpoint.vocabulary import Vocabulary
    from trainer.models.model import ModelShape
    from trainer.serving.scorer import TrainedModel


class EarlierModel(Protocol):
    """A trained model's tensors, by canonical name (trainer.sharding.state).

    Attributes:
        place: where it is, and its step, for messages.
        step: the step.
        shape: the sizes of the model.
        vocabulary: how the values of its training data got their ids; None: unknown.
        names: the tensors that it has.
    """

    @property
    def place(self) -> str: ...  # noqa: D102 - see the class

    @property
    def step(self) -> int: ...  # noqa: D102 - see the class

    @property
    def shape(self) -> ModelShape: ...  # noqa: D102 - see the class

    @property
    def vocabulary(self) -> Vocabulary | None: ...  # noqa: D102 - see the class

    @property
    def names(self) -> frozenset[str]: ...  # noqa: D102 - see the class

    def rows(self, table: str, part: str, start: int, stop: int) -> Tensor:
        """Return rows of a table's weight or of a state of its optimizer, [rows] or [rows, dim]."""
        ...

    def whole(self, name: str) -> Tensor:
        """Return a tensor of the dense part or of its optimizer."""
        ...


class CheckpointedModel:
    """The model of a checkpoint."""

    def __init__(self, checkpoint: CommittedCheckpoint) -> None:
        extra = checkpoint.commit.extra
        config, self.shape = model_of(extra, checkpoint.place)
        self.place, self.step = checkpoint.place, checkpoint.commit.step
        encoding = of_model(extra, checkpoint.place)
        self.vocabulary = None if encoding is None else kept_in(checkpoint.store, encoding)
        self._checkpoint = checkpoint
        self._seed, self._scale = config.seed, config.embedding_init_scale
        self._kinds = checkpoint.dtypes()
        self._shapes = checkpoint.shapes()
        self.names = frozenset(self._shapes)

    def rows(self, table: str, part: str, start: int, stop: int) -> Tensor:
        """See EarlierModel."""
        name = f"tables/{table}/{part}"
        shape = self._shapes[name]
        values = torch.empty(stop - start, *shape[1:], dtype=self._kinds[name])
        entry = Entry(shape, (TensorShard(values, (start, *(0 for _ in shape[1:]))),))
        filled, states = ({table: entry}, ()) if part == "weight" else ({}, (entry,))
        self._checkpoint.fill({name: entry}, self._initial(filled, states))
        return values

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self._shapes[name]

    def whole(self, name: str) -> Tensor:
        """See EarlierModel."""
        shape = self._shapes[name]
        values = torch.empty(shape, dtype=self._kinds[name])
        entry = Entry(shape, (TensorShard(values, (0,) * len(shape)),))
        begins_at_0 = (entry,) if name.startswith("managed/") else ()
        self._checkpoint.fill({name: entry}, self._initial({}, begins_at_0))
        return values

    def _initial(self, filled: Mapping[str, Entry], states: Iterable[Entry]) -> InitialTables:
        """Return what draws the initial state, of which a checkpoint may hold only the changes.

        That state is identified by all tables, but only those that are filled have memory and are drawn.
        """
        sizes = self.shape.num_embeddings
        every = {table: Entry((rows, self.shape.dim(table)), ()) for table, rows in sizes.items()}
        return InitialTables(every | dict(filled), states, seed=self._seed, scale=self._scale)


class ExportedModel:
    """The model of an export, in memory; it has no optimizer."""

    def __init__(self, trained: TrainedModel, place: str) -> None:
        self.place, self.step = f"{place} (step {trained.step})", trained.step
        self.shape, self.vocabulary = trained.shape, trained.vocabulary
        named: dict[str, Tensor] = {f"dense/{name}": value for name, value in trained.dense.items()}
        named |= {f"tables/{name}/weight": value for name, value in trained.tables.items()}
        named |= {f"managed/{name}/ids": value for name, value in trained.managed.items()}
        self._tensors: Mapping[str, Tensor] = named
        self.names = frozenset(named)

    def rows(self, table: str, part: str, start: int, stop: int) -> Tensor:
        """See EarlierModel."""
        return self._tensors[f"tables/{table}/{part}"][start:stop]

    def whole(self, name: str) -> Tensor:
        """See EarlierModel."""
        return self._tensors[name]


def open_earlier(uri: str, step: int | None, *, check: bool = True) -> EarlierModel:
    """Open the newest intact checkpoint in a folder or bucket, the one of a step, or an export's folder.

    Without `check`, a checkpoint's bytes are not verified: another rank has done so.

    Raises:
        ConfigError: the place is no folder or bucket, or the export has another step or is quantised.
        CheckpointError: there is no such model, or it is damaged.
    """
    try:
        folder = local_path(uri) if is_local(uri) else None
    except ValueError as error:
        raise ConfigError(f"init_from {error}") from error
    if folder is None or not is_export(folder):
        return CheckpointedModel(open_committed(uri, step, check=check))
    trained = read_export(folder)
    if step not in (None, trained.step):
        raise ConfigError(f"init_step is {step}, but {folder} is an export of step {trained.step}")
    if trained.quantization != "none":
        raise ConfigError(
            f"init_from {folder}: is an export with {trained.quantization} tables, which lost what training "
            "needs; give the checkpoint, or an export without --quantize"
        )
    return ExportedModel(trained, str(folder))

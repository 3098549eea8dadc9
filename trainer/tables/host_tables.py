"""Sharded tables on CPUs: look-up and fused update that replace fbgemm's kernel, on fbgemm's memory.

fbgemm's CPU kernel sorts ids and waits for memory row by row. rows.c prefetches the next rows, which is five
times as fast, and has all optimizers; fbgemm has three of them on CPUs. Without a C compiler, torch
operations do the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import KeyedTensor

from trainer.base.errors import ConfigError
from trainer.native.rows import LookUpJob, UpdateJob, load_rows
from trainer.tables.kernels import replace_kernels, table_kernels, takes_weights
from trainer.tables.row_rules import BETAS, KINDS, STATE_WIDTHS, update_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    from trainer.base.config import TrainerConfig
    from trainer.native.library import Library


def take_over_tables(model: DistributedModelParallel, config: TrainerConfig, *, ranks: int) -> None:
    """Replace every kernel that HostTables supports; the others stay fbgemm's.

    Raises:
        ConfigError: table_kernel is native, and the C kernels cannot be compiled.
    """
    if config.table_kernel == "fbgemm" or takes_weights(model):
        return  # fbgemm's kernels take ids with weights
    library = None if config.table_kernel == "torch" else load_rows()
    if config.table_kernel == "native" and library is None:
        raise ConfigError(
            "table_kernel is native, but the C kernels could not be compiled (see the warning above); "
            "install gcc or clang, or leave table_kernel at auto"
        )

    eps = config.table_eps(ranks)

    def replace(kernel: Any) -> nn.Module | None:  # noqa: ANN401 - fbgemm's modules are untyped
        if not _fits(kernel):
            return None
        return HostTables(kernel, kind=config.table_optimizer, eps=eps, library=library)

    replace_kernels(model, replace)


def find_short_way(
    model: DistributedModelParallel, features: Sequence[str]
) -> Callable[[KeyedJaggedTensor], KeyedTensor] | None:
    """Return a look-up without torchrec's exchanges if one kernel has all tables, in this order; else None.

    In a world of one nothing is sent, but torchrec's bookkeeping for it takes a millisecond per step.
    """
    kernels = list(table_kernels(model))
    names = [[table.name for table in tables] for _, tables in kernels]
    if names != [list(features)] or not isinstance(kernels[0][0], HostTables):
        return None
    tables = kernels[0][0]
    widths = [weight.shape[1] for weight in tables.split_embedding_weights()]

    def look_up(sparse: KeyedJaggedTensor) -> KeyedTensor:
        values = tables(indices=sparse.values(), offsets=sparse.offsets())
        return KeyedTensor(keys=sparse.keys(), length_per_key=widths, values=values)

    return look_up


def _fits(kernel: Any) -> bool:  # noqa: ANN401 - fbgemm's modules are untyped
    """Whether a kernel has fp32 tables of one width, one per feature; of the trainer's, all but fp16 do."""
    weights = kernel.split_embedding_weights()
    return (
        hasattr(kernel, "split_optimizer_states")
        and bool(weights)
        and all(weight.dtype == torch.float32 for weight in weights)
        and len({weight.shape[1] for weight in weights}) == 1
        and list(kernel.feature_table_map) == list(range(len(weights)))
    )


class HostTables(nn.Module):
    """Several tables [rows, dim] in one piece of memory, that of fbgemm's training kernel.

    Its forward has that kernel's arguments: ids feature by feature, and the offsets of the bags. It returns
    the sums of the bags' rows, [batch, features * dim]. Backward updates the rows.
    """

    def __init__(self, kernel: Any, *, kind: str, eps: float, library: Library | None) -> None:  # noqa: ANN401 - untyped
        super().__init__()
        self.kernel = kernel
        self.kind = kind
        self.eps = eps
        self.iter = torch.zeros(1, dtype=torch.int64)  # updates done: Adam's bias correction needs it
        self._library = library
        sizes = [weight.shape for weight in kernel.split_embedding_weights()]
        self._dim = sizes[0][1]
        self._rows = torch.tensor([rows for rows, _ in sizes])
        self._first_rows = self._rows.cumsum(0) - self._rows
        total = int(self._rows.sum())
        self._weights = kernel.weights_host.detach().view(total, self._dim)
        self._states = self._find_states(total)
        # An input with a gradient, without which autograd would not call _LookUp.backward: ids have none.
        self._anchor = torch.zeros((), requires_grad=True)

    def forward(self, indices: Tensor, offsets: Tensor, per_sample_weights: Tensor | None = None) -> Tensor:
        """Return the sums of the bags' rows; see the class."""
        if per_sample_weights is not None:
            raise NotImplementedError("ids with weights: set table_kernel to fbgemm")
        looked_up: Tensor = _LookUp.apply(self._anchor, self, indices.long().contiguous(), offsets.long())
        return looked_up

    def split_embedding_weights(self) -> list[Tensor]:
        """Return live views [rows, dim], one per table."""
        weights: list[Tensor] = self.kernel.split_embedding_weights()
        return weights

    def split_optimizer_states(self) -> list[tuple[Tensor, ...]]:
        """Return live views of each table's states: [rows, dim], or [rows] for one number per row."""
        parts = [state.split(self._rows.tolist()) for state in self._states]
        return list(zip(*parts, strict=True)) if parts else []

    def look_up(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """Return the sums of the bags' rows [batch, features * dim], without a gradient."""
        batch = (len(offsets) - 1) // len(self._rows)
        if self._library is None:
            bags = nn.functional.embedding_bag(
                ids + self._spread(offsets, self._first_rows),
                self._weights,
                offsets,
                mode="sum",
                include_last_offset=True,
            )
            return bags.view(len(self._rows), batch, self._dim).transpose(0, 1).reshape(batch, -1)
        out = torch.empty(batch, len(self._rows) * self._dim)
        self._look_up_natively(self._library, ids, offsets, out)
        return out

    def update(self, ids: Tensor, offsets: Tensor, gradient: Tensor) -> None:
        """Update every row that was looked up once, by the sum of its bags' gradients."""
        self.iter += 1
        if gradient.stride(1) != 1 or gradient.dtype != torch.float32:
            gradient = gradient.float().contiguous()
        if self._library is None:
            self._update_by_torch(ids, offsets, gradient)
        else:
            self._update_natively(self._library, ids, offsets, gradient)

    def _find_states(self, total: int) -> tuple[Tensor, ...]:
        """Return all tables' states, [rows, dim] or [rows]: fbgemm's memory for adagrad, otherwise zeros."""
        shapes = [(total,) if width == 1 else (total, self._dim) for width in STATE_WIDTHS[self.kind]]
        if self.kind.endswith("adagrad"):
            return (self.kernel.momentum1_host.detach().view(shapes[0]),)
        return tuple(torch.zeros(shape) for shape in shapes)

    def _update_by_torch(self, ids: Tensor, offsets: Tensor, gradient: Tensor) -> None:
        features, batch = len(self._rows), (len(offsets) - 1) // len(self._rows)
        # The index of each id's gradient among the [batch * features] vectors; ids are ordered by bag.
        vectors = torch.arange(batch * features).view(batch, features).t().reshape(-1)
        places = self._spread(offsets, vectors, batch=1)
        rows, order = torch.unique(ids + self._spread(offsets, self._first_rows), return_inverse=True)
        each = gradient.reshape(-1, self._dim).index_select(0, places)
        update_rows(
            self.kind,
            self._weights,
            self._states,
            rows,
            torch.zeros(len(rows), self._dim).index_add_(0, order, each),
            learning_rate=self.kernel.get_learning_rate(),
            eps=self.eps,
            steps=int(self.iter),
        )

    def _spread(self, offsets: Tensor, values: Tensor, *, batch: int | None = None) -> Tensor:
        """Repeat a feature's value (or, with batch 1, a bag's) for each of its ids."""
        step = (len(offsets) - 1) // len(self._rows) if batch is None else batch
        return values.repeat_interleave(offsets[::step].diff() if step else offsets[:0])

    def _look_up_natively(self, library: Library, ids: Tensor, offsets: Tensor, out: Tensor) -> None:
        job = LookUpJob(
            weights=self._weights.data_ptr(),
            ids=ids.data_ptr(),
            offsets=offsets.data_ptr(),
            first_rows=self._first_rows.data_ptr(),
            rows=self._rows.data_ptr(),
            out=out.data_ptr(),
            features=len(self._rows),
            batch=len(out),
            dim=self._dim,
            stride=out.stride(0),
        )
        _refuse_id(library.run("look_up", job, len(out)))

    def _update_natively(self, library: Library, ids: Tensor, offsets: Tensor, gradient: Tensor) -> None:
        first, second = [*(state.data_ptr() for state in self._states), 0, 0][:2]
        widths = [*(width or self._dim for width in STATE_WIDTHS[self.kind]), 0, 0]
        corrections = [1 - beta ** int(self.iter) for beta in BETAS]
        job = UpdateJob(
            weights=self._weights.data_ptr(),
            first_state=first,
            second_state=second,
            ids=ids.data_ptr(),
            offsets=offsets.data_ptr(),
            first_rows=self._first_rows.data_ptr(),
            rows=self._rows.data_ptr(),
            gradient=gradient.data_ptr(),
            first_width=widths[0],
            second_width=widths[1],
            batch=len(gradient),
            dim=self._dim,
            stride=gradient.stride(0),
            kind=KINDS.index(self.kind),
            rate=self.kernel.get_learning_rate(),
            eps=self.eps,
            first_correction=corrections[0],
            second_correction=corrections[1],
        )
        _refuse_id(library.run("update", job, len(self._rows)))


def _refuse_id(position: int | None) -> None:
    if position is not None:
        raise IndexError(f"the id at position {position} of the step is not a row of its table")


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _anchor: Tensor, tables: HostTables, ids: Tensor, offsets: Tensor) -> Tensor:  # noqa: ANN401 - autograd's context
        ctx.tables, ctx.ids, ctx.offsets = tables, ids, offsets
        return tables.look_up(ids, offsets)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None, None]:  # noqa: ANN401 - as above
        ctx.tables.update(ctx.ids, ctx.offsets, gradient)
        return None, None, None, None

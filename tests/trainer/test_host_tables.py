"""The CPU tables beside fbgemm's own kernel, and beside torch's arithmetic where fbgemm has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    EmbeddingLocation,
    SplitTableBatchedEmbeddingBagsCodegen,
)

from tests.trainer.support_learner import make_learner, train_losses
from trainer.base.errors import ConfigError
from trainer.native import library as native
from trainer.native.rows import load_rows
from trainer.tables.host_tables import HostTables
from trainer.tables.kernels import table_kernels, table_pieces
from trainer.tables.row_rules import KINDS, make_states, update_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds
    from trainer.loop.learner import Learner

ROWS = (50, 7, 1, 300)
DIM = 20
BATCH = 64
FBGEMM_HAS = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}
BOTH = pytest.mark.parametrize("library", [pytest.param(True, id="C"), pytest.param(False, id="torch")])


def _kernel(kind: str) -> Any:
    kernel = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, DIM, EmbeddingLocation.HOST, ComputeDevice.CPU) for rows in ROWS],
        optimizer=FBGEMM_HAS.get(kind, EmbOptimType.EXACT_SGD),
        learning_rate=0.1,
        eps=1e-4,
    )
    generator = torch.Generator().manual_seed(3)
    for weight in kernel.split_embedding_weights():
        weight.copy_(torch.rand(weight.shape, generator=generator) - 0.5)
    return kernel


def _tables(kind: str, *, library: bool) -> HostTables:
    loaded = load_rows() if library else None
    if library and loaded is None:
        pytest.skip("there is no C compiler here")
    return HostTables(_kernel(kind), kind=kind, eps=1e-4, library=loaded)


def _ids(*, most: int, seed: int) -> tuple[Tensor, Tensor]:
    """Bags of 0 to `most` ids, or of one each where `most` is 1; with many equal ones."""
    generator = torch.Generator().manual_seed(seed)
    count = len(ROWS) * BATCH
    lengths = torch.ones(count) if most == 1 else torch.randint(0, most + 1, (count,), generator=generator)
    offsets = torch.nn.functional.pad(lengths.long().cumsum(0), (1, 0))
    ids = [
        (torch.rand(int(part.sum()), generator=generator) ** 3 * rows).long()
        for part, rows in zip(lengths.long().view(len(ROWS), BATCH), ROWS, strict=True)
    ]
    return torch.cat(ids), offsets


def _train(kernel: Any, *, most: int, steps: int = 4) -> list[Tensor]:
    """What each step looks up; gradients differ by sample and column."""
    outputs = []
    for step in range(steps):
        output = kernel(indices=(ids := _ids(most=most, seed=step))[0], offsets=ids[1])
        outputs.append(output.detach().clone())
        weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(100 + step))
        (output * weights).sum().backward()
    return outputs


@BOTH
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("kind", FBGEMM_HAS)
def test_outputs_weights_and_states_equal_those_of_fbgemm(kind: str, most: int, *, library: bool) -> None:
    theirs, ours = _kernel(kind), _tables(kind, library=library)
    for expected, got in zip(_train(theirs, most=most), _train(ours, most=most), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    pairs = zip(ours.split_embedding_weights(), theirs.split_embedding_weights(), strict=True)
    for weight, expected in pairs:
        torch.testing.assert_close(weight, expected, rtol=1e-5, atol=1e-6)
    for states, expected in zip(ours.split_optimizer_states(), theirs.split_optimizer_states(), strict=True):
        torch.testing.assert_close(list(states), list(expected), rtol=1e-5, atol=1e-6)


@pytest.fixture(params=["OpenMP", "Python's threads"])
def threads(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], None]]:
    """Set the number of threads, of each kind."""
    if request.param != "OpenMP":
        monkeypatch.setattr(native, "openmp_team", lambda: None)
    elif native.openmp_team() is None:
        pytest.skip("torch uses no OpenMP here")
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_weights_and_states_do_not_depend_on_the_threads(threads: Callable[[int], None]) -> None:
    found = []
    for count in (1, 2, 3, 7):  # more than there are features, too
        threads(count)
        ours = _tables("adam", library=True)
        outputs = _train(ours, most=3)
        states = [state for each in ours.split_optimizer_states() for state in each]
        found.append([*outputs, *ours.split_embedding_weights(), *states])
    for others in found[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found[0], others, strict=True))


def test_an_id_without_a_row_is_refused_by_its_position(threads: Callable[[int], None]) -> None:
    tables = _tables("sgd", library=True)
    ids, offsets = _ids(most=1, seed=0)
    ids[2 * BATCH + 40] = ids[3 * BATCH + 5] = 10_000
    threads(3)
    with pytest.raises(IndexError, match=f"position {2 * BATCH + 40} of the step is not a row"):
        tables.update(ids, offsets, torch.zeros(BATCH, len(ROWS) * DIM))


@BOTH
@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(FBGEMM_HAS)))
def test_adam_variants_follow_the_rules_of_replicas(kind: str, *, library: bool) -> None:
    ours = _tables(kind, library=library)
    weights = [weight.clone() for weight in ours.split_embedding_weights()]
    states = [make_states(kind, weight) for weight in weights]
    for step in range(3):
        ids, offsets = _ids(most=1, seed=step)
        output = ours(indices=ids, offsets=offsets)
        slopes = torch.randn(output.shape, generator=torch.Generator().manual_seed(100 + step))
        (output * slopes).sum().backward()
        for table, weight in enumerate(weights):
            rows, place = torch.unique(ids.view(len(ROWS), BATCH)[table], return_inverse=True)
            columns = slopes[:, table * DIM : (table + 1) * DIM]
            gradient = torch.zeros(len(rows), DIM).index_add_(0, place, columns)
            update_rows(
                kind, weight, states[table], rows, gradient, learning_rate=0.1, eps=1e-4, steps=step + 1
            )
    torch.testing.assert_close(ours.split_embedding_weights(), weights, rtol=1e-5, atol=1e-6)
    for got, expected in zip(ours.split_optimizer_states(), states, strict=True):
        torch.testing.assert_close(list(got), list(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_results_do_not_depend_on_the_number_of_threads(kind: str) -> None:
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            tables = _tables(kind, library=True)
            _train(tables, most=3)
            results.append([weight.clone() for weight in tables.split_embedding_weights()])
    finally:
        torch.set_num_threads(before)
    for others in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], others, strict=True))


@BOTH
def test_a_non_contiguous_gradient_is_read_correctly(*, library: bool) -> None:
    plain, spread = _tables("rowwise_adagrad", library=library), _tables("rowwise_adagrad", library=library)
    ids, offsets = _ids(most=1, seed=0)
    slopes = torch.randn(BATCH, 2 * len(ROWS) * DIM, generator=torch.Generator().manual_seed(5))
    half = slopes[:, : len(ROWS) * DIM]
    plain(indices=ids, offsets=offsets).backward(half.contiguous())
    spread(indices=ids, offsets=offsets).backward(half)
    assert torch.equal(plain.kernel.weights_host, spread.kernel.weights_host)


@pytest.mark.parametrize("bad", [-1, 50])
def test_an_id_out_of_range_is_refused_without_any_change(bad: int) -> None:
    tables = _tables("sgd", library=True)
    before = tables.kernel.weights_host.detach().clone()
    ids, offsets = _ids(most=1, seed=0)
    ids[3] = bad
    with pytest.raises(IndexError, match="position 3 of the step"):
        tables(indices=ids, offsets=offsets)
    assert torch.equal(tables.kernel.weights_host, before)


def _run_losses(place: Place, settings: dict[str, Any]) -> list[float]:
    return train_losses(place, make_learner(place, seed=5, **settings), [32] * 20)


def _hosts(learner: Learner) -> list[HostTables]:
    return [kernel for kernel, _ in table_kernels(learner.model) if isinstance(kernel, HostTables)]


def _shares_memory(place: Place) -> bool:
    learner = make_learner(place)
    owned = {host.kernel.weights_host.untyped_storage().data_ptr() for host in _hosts(learner)}
    held = {piece.weight.untyped_storage().data_ptr() for piece in table_pieces(learner.model)}
    return bool(owned) and owned == held


def _first_rate(place: Place) -> float:
    learner = make_learner(place, table_optimizer="sgd", learning_rate=0.5, lr_warmup_steps=1)
    learner.optimizers.prepare(0)
    return float(_hosts(learner)[0].kernel.get_learning_rate())


def _without_compiler(place: Place, path: str) -> tuple[str, int]:
    """The refusal of the C kernels, and the steps that a run does which has not asked for them."""
    load_rows.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)
        patch.delenv("CC", raising=False)
        try:
            with pytest.raises(ConfigError) as refused:
                make_learner(place, table_kernel="native")
            return str(refused.value), len(train_losses(place, make_learner(place), [16] * 3))
        finally:
            load_rows.cache_clear()


def _refusal_of_adam(place: Place) -> str:
    with pytest.raises(ConfigError) as refused:
        make_learner(place, table_optimizer="adam", table_kernel="fbgemm")
    return str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kernel_gives_the_same_losses(worlds: Worlds, kind: str) -> None:
    kernels = ["native", "torch"] + (["fbgemm"] if kind in FBGEMM_HAS else [])
    settings = [{"table_kernel": kernel, "table_optimizer": kind} for kernel in kernels]
    reference, *others = (worlds.run(1, _run_losses, each)[0] for each in settings)
    assert reference[-1] < reference[0]
    for losses in others:
        assert losses == pytest.approx(reference, abs=1e-5)


@pytest.mark.parametrize("kind", ["adam", "partial_rowwise_adam"])
def test_sharded_adam_on_two_ranks_learns_like_one_rank(worlds: Worlds, kind: str) -> None:
    settings = {"table_optimizer": kind, "dense_optimizer": "sgd", "dense_learning_rate": 0.05}
    one, two = (worlds.run(size, _run_losses, settings)[0] for size in (1, 2))
    assert two == pytest.approx(one, abs=1e-5)


def test_the_learner_uses_these_tables_in_the_memory_of_fbgemm(worlds: Worlds) -> None:
    assert worlds.run(1, _shares_memory) == [True]


def test_the_learning_rate_is_that_of_the_schedule(worlds: Worlds) -> None:
    assert worlds.run(1, _first_rate) == [pytest.approx(0.25)]


def test_without_a_compiler_the_c_kernels_are_an_error_only_if_requested(
    worlds: Worlds, tmp_path: Path
) -> None:
    refusal, steps = worlds.run(1, _without_compiler, str(tmp_path))[0]
    assert "install gcc or clang, or leave table_kernel at auto" in refusal
    assert steps == 3


def test_a_library_writable_by_others_is_not_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    load_rows.cache_clear()
    folder = tmp_path / "cloudrec-trainer"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        assert load_rows() is None
    finally:
        load_rows.cache_clear()


def test_adam_on_the_cpu_kernel_of_fbgemm_is_refused_with_the_remedy(worlds: Worlds) -> None:
    assert "leave table_kernel at auto" in worlds.run(1, _refusal_of_adam)[0]

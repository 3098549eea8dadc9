from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from trainer.base.errors import NonFiniteLossError
from trainer.report.metrics import BinaryMetrics, Metrics
from trainer.report.ranking import count_with_numpy, count_with_torch, doubled_wins

if TYPE_CHECKING:
    from tests.trainer.support_ranks import Place, RankPool


def _compute(logits: torch.Tensor, labels: torch.Tensor) -> Metrics:
    metrics = BinaryMetrics()
    metrics.update(logits, labels)
    return metrics.compute()


def _compute_shares(place: Place, logits: torch.Tensor, labels: torch.Tensor, cuts: list[int]) -> Metrics:
    share = slice(cuts[place.rank], cuts[place.rank + 1])
    metrics = BinaryMetrics()
    for half in (slice(0, 100), slice(100, None)):
        metrics.update(logits[share][half], labels[share][half])
    return metrics.compute(place.group)


def _refusal(place: Place, value: float) -> str:
    metrics = BinaryMetrics()
    metrics.update(torch.tensor([0.0, value if place.rank == 1 else 1.0]), torch.tensor([0.0, 1.0]))
    with pytest.raises(NonFiniteLossError) as caught:
        metrics.compute(place.group)
    return str(caught.value)


def _samples(size: int, *, decimals: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits with many ties where `decimals` is small, and labels that follow them."""
    generator = torch.Generator().manual_seed(size + decimals)
    logits = (2 * torch.randn(size, generator=generator)).round(decimals=decimals)
    return logits, (torch.rand(size, generator=generator) < torch.sigmoid(logits - 1)).float()


@pytest.mark.parametrize("decimals", [0, 1, 6])
@pytest.mark.parametrize("cuts", [[0, 3000], [0, 1200, 3000], [0, 3000, 3000], [0, 0, 1, 3000]])
def test_metrics_over_ranks_equal_those_of_sklearn_over_all_samples(
    ranks: RankPool, cuts: list[int], decimals: int
) -> None:
    logits, labels = _samples(3000, decimals=decimals)
    results = ranks.run(len(cuts) - 1, _compute_shares, logits, labels, cuts)
    probabilities = torch.sigmoid(logits.double()).numpy()
    rate = float(labels.mean())
    expected_loss = log_loss(labels, probabilities)
    assert results[0]["auc"] == pytest.approx(roc_auc_score(labels, logits), abs=1e-14)
    assert results[0]["logloss"] == pytest.approx(expected_loss, rel=1e-12)
    entropy = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
    assert results[0]["ne"] == pytest.approx(expected_loss / entropy, rel=1e-6)
    assert results[0]["calibration"] == pytest.approx(probabilities.sum() / float(labels.sum()), rel=1e-12)
    assert (results[0]["samples"], results[0]["positives"]) == (3000, int(labels.sum()))
    assert all(result == results[0] for result in results), "all ranks get the same bits"


def test_the_auc_is_bit_identical_on_every_world_size(ranks: RankPool) -> None:
    logits, labels = _samples(2000, decimals=2)
    cuts = {1: [0, 2000], 2: [0, 700, 2000], 3: [0, 10, 1990, 2000]}
    aucs = {ranks.run(size, _compute_shares, logits, labels, cuts[size])[0]["auc"] for size in cuts}
    assert len(aucs) == 1


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.floats(width=32, allow_nan=False, min_value=-50, max_value=50), st.booleans()),
        min_size=2,
    ).filter(lambda samples: len({label for _, label in samples}) == 2)
)
def test_the_auc_is_the_share_of_correctly_ordered_pairs_with_ties_as_half(
    samples: list[tuple[float, bool]],
) -> None:
    logits = np.array([score for score, _ in samples], dtype=np.float32)
    labels = np.array([label for _, label in samples])
    difference = logits[labels][:, None].astype(float) - logits[~labels][None, :]
    expected = float(np.mean((difference > 0) + 0.5 * (difference == 0)))
    result = _compute(torch.from_numpy(logits), torch.from_numpy(labels).float())
    assert result["auc"] == pytest.approx(expected, abs=1e-12)


def test_zeros_of_both_signs_are_equal_and_extremes_are_ordered() -> None:
    logits = torch.tensor([-3e38, -0.0, 0.0, 3e38])
    assert _compute(logits, torch.tensor([0, 1, 0, 1]))["auc"] == 0.875


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_a_single_class_has_no_auc_and_is_reported(label: float, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        result = _compute(torch.zeros(4), torch.full((4,), label))
    assert (result["auc"], result["ne"]) == (None, None)
    assert result["logloss"] == pytest.approx(math.log(2))
    assert "undefined" in caplog.text


def test_no_samples_have_no_metrics() -> None:
    expected = {"auc": None, "logloss": None, "ne": None, "calibration": None, "samples": 0, "positives": 0}
    assert BinaryMetrics().compute() == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_non_finite_score_is_refused_on_all_ranks(ranks: RankPool, value: float) -> None:
    messages = ranks.run(2, _refusal, value)
    assert messages[0] == messages[1]
    assert messages[0].startswith("1 of 4 scores are not finite")


def test_a_batch_can_be_reused_after_the_update() -> None:
    logits, labels = _samples(500, decimals=3)
    metrics, copies = BinaryMetrics(), BinaryMetrics()
    reused = logits.clone()
    metrics.update(reused, labels)
    reused.zero_()
    copies.update(logits, labels)
    assert metrics.compute() == copies.compute()
    metrics.reset()
    assert metrics.compute()["samples"] == 0


def test_samples_without_a_label_do_not_count() -> None:
    logits, labels = _samples(3000, decimals=1)
    missing = torch.arange(3000) % 3 == 0
    found = _compute(logits.masked_fill(missing, math.nan), labels.masked_fill(missing, -1.0))
    assert found == _compute(logits[~missing], labels[~missing])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_of_few_bits_have_the_metrics_of_their_values(dtype: torch.dtype) -> None:
    logits, labels = _samples(3000, decimals=6)
    assert _compute(logits.to(dtype), labels) == _compute(logits.to(dtype).float(), labels)
    assert _compute(logits.to(dtype), labels)["auc"] != _compute(logits, labels)["auc"], "there are ties"


@pytest.mark.parametrize("chunk", [None, 7, 100_000])
@pytest.mark.parametrize("rate", [0.0, 0.01, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("decimals", [0, 1, 6])
def test_a_device_counts_the_pairs_that_a_cpu_counts(decimals: int, rate: float, chunk: int | None) -> None:
    scores, _ = _samples(2000, decimals=decimals)
    scores[:3] = torch.tensor([-0.0, 0.0, 3e38])
    few = scores[torch.rand(2000, generator=torch.Generator().manual_seed(4)) < rate]
    below = (scores[None] < few[:, None]).sum() + (scores[None] <= few[:, None]).sum()
    for count in (count_with_numpy, count_with_torch):
        assert count(scores, few, torch.device("cpu"), chunk=chunk) == int(below)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=30))
def test_wins_are_counted_by_either_class(samples: list[tuple[int, bool]]) -> None:
    scores = torch.tensor([float(score) for score, _ in samples])
    labels = torch.tensor([int(label) for _, label in samples])
    pairs = [(high, low) for high, yes in samples if yes for low, other in samples if not other]
    expected = sum(2 * (high > low) + (high == low) for high, low in pairs)
    assert doubled_wins(scores, labels, torch.device("cpu")) == expected

"""Ranking and calibration figures of a score, against labels or against true probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


def auc(scores: npt.NDArray[np.number], positive: npt.NDArray[np.number]) -> float:
    """Return the area under the ROC curve; ties count half.

    Args:
        scores: [rows], any monotone score.
        positive: [rows], labels (0/1) or each row's probability of being positive; with probabilities
            the result is the expected AUC, free of label noise.
    """
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    weight = positive[order].astype(np.float64)
    firsts = np.concatenate([[0], np.flatnonzero(ranked[1:] != ranked[:-1]) + 1])
    positives = np.add.reduceat(weight, firsts)
    negatives = np.add.reduceat(1.0 - weight, firsts)
    below = np.cumsum(negatives) - negatives
    return float((positives * (below + 0.5 * negatives)).sum() / (positives.sum() * negatives.sum()))


def logloss(logits: npt.NDArray[np.number], positive: npt.NDArray[np.number]) -> float:
    """Return the mean cross-entropy, in nats, of labels or probabilities under these logits."""
    losses = np.logaddexp(0.0, logits) - positive * logits
    return float(losses.mean(dtype=np.float64))


def sigmoid(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return the probabilities of these logits."""
    return 1.0 / (1.0 + np.exp(-logits.astype(np.float64)))

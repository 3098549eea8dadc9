"""The best linear student of a teacher: the upper bound for a model without interactions.

It is linear in the one-hot ids of the categories (including missing), and may use any curve on each integer:
the correction of an integer is piecewise constant over up to 64 quantile bins of its transformed value, added
to the teacher's smooth curve. It is fitted to the teacher's true probabilities and not to labels, so label
noise does not weaken it. It starts from the teacher's additive part, which it can represent exactly, and a
weak prior keeps it near, so sampling noise hardly weakens it.

L-BFGS runs until the largest component of the gradient (of the mean loss, in whitened coordinates) is below
1e-4. By measurement, a tenth of that changes the student's AUC by less than 0.0001, and eight times as many
rows by less than 0.0005; tests/unit/data allows 0.001.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize

from cloudrec.data.synth.metrics import sigmoid
from cloudrec.data.synth.teacher import CATEGORIES, INTEGERS, transformed

if TYPE_CHECKING:
    import numpy.typing as npt

    from cloudrec.data.synth.teacher import Teacher

FIT_ROWS = 1 << 16
_BINS = 64
_PRIOR_ROWS = 200.0  # the prior weighs as much as this many rows in each id or bin


@dataclass(frozen=True, kw_only=True)
class LinearStudent:
    """A fitted linear model, as one table of effects per field."""

    effects: list[
        npt.NDArray[np.float32]
    ]  # 39 tables [65536]: the effect of each entry of the teacher's tables
    intercept: float
    rows: int  # it was fitted to
    gradient: float  # the largest component at the end of the fit
    iterations: int

    def logits(self, entries: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
        """Score rows given as the teacher's entries [39, rows]."""
        total = np.full(entries.shape[1], self.intercept, np.float32)
        for effects, column in zip(self.effects, entries, strict=True):
            total += effects[column]
        return total


def fit_linear(teacher: Teacher, rng: np.random.Generator, *, rows: int = FIT_ROWS) -> LinearStudent:
    """Fit the best linear student on freshly drawn rows and the teacher's true probabilities."""
    groups = [_integer_groups(values) for values in teacher.integers] + list(teacher.ids.astype(np.int64))
    drawn = teacher.draw(rng, rows)
    columns = [group[entry] for group, entry in zip(groups, drawn.entries, strict=True)]
    problem = _Problem(
        columns=columns,
        sizes=[int(group.max()) + 1 for group in groups],
        base=teacher.additive(drawn.entries) * np.float32(teacher.additive_scale),
        target=sigmoid(drawn.logits),
    )
    solution = minimize(
        problem.loss_and_gradient,
        problem.start(teacher.intercept),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 200, "gtol": 1e-4, "ftol": 0.0, "maxcor": 20},
    )
    intercept, scale, corrections = problem.unpack(solution.x)
    own = [
        *teacher.integer_effects,
        *(e[i] for e, i in zip(teacher.category_effects, teacher.ids, strict=True)),
    ]
    effects = [
        (scale * teacher.additive_scale * base + correction[group]).astype(np.float32)
        for base, correction, group in zip(own, corrections, groups, strict=True)
    ]
    return LinearStudent(
        effects=effects,
        intercept=intercept,
        rows=rows,
        gradient=float(np.abs(solution.jac).max()),
        iterations=int(solution.nit),
    )


def _integer_groups(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the quantile bin of each entry's transformed value: [65536]."""
    t = transformed(values)
    edges = np.unique(np.quantile(t, np.linspace(0.0, 1.0, _BINS + 1)[1:-1]))
    return np.searchsorted(edges, t, side="right")


class _Problem:
    """Mean cross-entropy plus the prior, in coordinates whitened by each weight's number of rows."""

    def __init__(
        self,
        *,
        columns: list[npt.NDArray[np.int64]],
        sizes: list[int],
        base: npt.NDArray[np.float32],
        target: npt.NDArray[np.float64],
    ) -> None:
        self.columns = columns
        self.sizes = sizes
        self.base = base.astype(np.float64)
        self.target = target
        rows = len(target)
        counts = [np.bincount(c, minlength=s) for c, s in zip(columns, sizes, strict=True)]
        self.whitening = np.sqrt(rows / (np.concatenate(counts) + _PRIOR_ROWS))
        self.prior = _PRIOR_ROWS / rows * self.whitening**2

    def start(self, intercept: float) -> npt.NDArray[np.float64]:
        """Return the teacher's own additive part, unscaled by any correction."""
        return np.concatenate([[intercept, 1.0], np.zeros(len(self.whitening))])

    def unpack(self, x: npt.NDArray[np.float64]) -> tuple[float, float, list[npt.NDArray[np.float64]]]:
        """Return the intercept, the scale of the teacher's own part, and the corrections per field."""
        corrections = np.split(x[2:] * self.whitening, np.cumsum(self.sizes)[:-1])
        return float(x[0]), float(x[1]), corrections

    def loss_and_gradient(self, x: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        """Return the penalised mean loss and its gradient."""
        intercept, scale, corrections = self.unpack(x)
        logits = intercept + scale * self.base
        for correction, column in zip(corrections, self.columns, strict=True):
            logits += correction[column]
        loss = np.mean(np.logaddexp(0.0, logits) - self.target * logits)
        # Products are summed by numpy, not by BLAS: its threads would wait for each other on busy processors.
        error = (1.0 / (1.0 + np.exp(-logits)) - self.target) / len(logits)
        by_group = [np.bincount(c, error, s) for c, s in zip(self.columns, self.sizes, strict=True)]
        free = x[2:]
        gradient = np.concatenate(
            [
                [error.sum(), (error * self.base).sum()],
                np.concatenate(by_group) * self.whitening + self.prior * free,
            ]
        )
        return float(loss + 0.5 * np.sum(self.prior * free**2)), gradient


assert INTEGERS + CATEGORIES == 39  # noqa: PLR2004, S101 - Criteo's shape, on which the tables rely

"""The teacher of the synthetic data: a logistic model with a known best AUC.

    logit = intercept + sum of each category's effect + sum of each integer's effect
          + sum over a few pairs of categorical features of <left[id of one], right[id of the other]>

The latent vectors are centred under the ids' distribution and the features are independent, so the expected
interaction given one of its ids is 0: a linear model cannot learn any part. The effects of integers depend on
log1p(max(value, 0)) only, with missing as 0, because the prepared data contains nothing else.

Every field is drawn by a table of 65,536 equally likely entries. So a draw is one gather, and all
distributions, means and variances are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cloudrec.data.synth.metrics import auc, sigmoid

if TYPE_CHECKING:
    import numpy.typing as npt

INTEGERS = 13
CATEGORIES = 26
_ENTRIES = 1 << 16
_CALIBRATION_ROWS = 1 << 17
_CALIBRATION_STEPS = 12


@dataclass(frozen=True, kw_only=True)
class TeacherSettings:
    """The settings of a teacher; written to synth.json."""

    ids_per_feature: int = 500
    zipf_exponent: float = 1.5
    interactions: int = 5
    rank: int = 2
    rare_damping: float = 1.0  # an id's effect falls with this power of its rank: rare ids matter less
    base_rate: float = 0.25
    target_bayes_auc: float = 0.8246
    target_linear_auc: float = 0.7764


class TeacherRows(NamedTuple):
    """A block of drawn rows, as entries of the teacher's tables."""

    entries: npt.NDArray[np.uint16]  # [39, rows]: 13 integers, then 26 categories
    logits: npt.NDArray[np.float32]  # [rows]


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """The drawn model; ids are 0 (missing), 1 (most frequent), 2, ..."""

    settings: TeacherSettings
    integers: npt.NDArray[np.int64]  # [13, 65536]: the value of each entry
    present: npt.NDArray[np.bool_]  # [13, 65536]: False where the field is empty
    integer_effects: npt.NDArray[np.float32]  # [13, 65536]
    ids: npt.NDArray[np.uint16]  # [26, 65536]: the id of each entry
    codes: npt.NDArray[np.uint32]  # [26, ids + 1]: the hexadecimal category of each id
    category_effects: npt.NDArray[np.float32]  # [26, ids + 1]
    pairs: npt.NDArray[np.int64]  # [interactions, 2]: the features that interact
    left: npt.NDArray[np.float32]  # [interactions, rank, ids + 1]
    right: npt.NDArray[np.float32]  # [interactions, rank, ids + 1]
    intercept: float
    additive_scale: float
    interaction_scale: float

    def draw(self, rng: np.random.Generator, rows: int) -> TeacherRows:
        """Return randomly drawn rows with their true logits."""
        entries = rng.integers(0, _ENTRIES, size=(INTEGERS + CATEGORIES, rows), dtype=np.uint16)
        logits = self.additive(entries) * np.float32(self.additive_scale)
        logits += self.interaction(entries) * np.float32(self.interaction_scale)
        logits += np.float32(self.intercept)
        return TeacherRows(entries, logits)

    def additive(self, entries: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
        """Return the unscaled sum of the effects of single fields: [rows]."""
        total = np.zeros(entries.shape[1], np.float32)
        for feature in range(INTEGERS):
            total += self.integer_effects[feature][entries[feature]]
        for feature in range(CATEGORIES):
            total += self.category_effects[feature][self.ids_of(entries, feature)]
        return total

    def interaction(self, entries: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
        """Return the unscaled sum of the pairs' inner products: [rows]."""
        total = np.zeros(entries.shape[1], np.float32)
        for pair, (one, other) in enumerate(self.pairs):
            ids_one, ids_other = self.ids_of(entries, one), self.ids_of(entries, other)
            for left, right in zip(self.left[pair], self.right[pair], strict=True):
                total += left[ids_one] * right[ids_other]
        return total

    def ids_of(self, entries: npt.NDArray[np.uint16], feature: int) -> npt.NDArray[np.uint16]:
        """Return the ids that one categorical feature has in these rows: [rows]."""
        ids: npt.NDArray[np.uint16] = self.ids[feature][entries[INTEGERS + feature]]
        return ids


def draw_teacher(rng: np.random.Generator, settings: TeacherSettings) -> Teacher:
    """Draw a teacher and scale it so that its AUC and its additive part's AUC are the settings' targets."""
    integers, present = _draw_integers(rng)
    ids = np.stack([_draw_ids(rng, settings) for _ in range(CATEGORIES)])
    pairs = rng.permutation(CATEGORIES)[: 2 * settings.interactions].reshape(-1, 2)
    left = _draw_latent(rng, ids[pairs[:, 0]], settings)
    right = _draw_latent(rng, ids[pairs[:, 1]], settings)
    right /= _spread(left, right, ids[pairs])[:, None, None]
    unscaled = Teacher(
        settings=settings,
        integers=integers,
        present=present,
        integer_effects=_draw_integer_effects(rng, integers),
        ids=ids,
        codes=np.stack([_draw_codes(rng, settings.ids_per_feature) for _ in range(CATEGORIES)]),
        category_effects=_draw_category_effects(rng, ids, settings),
        pairs=pairs,
        left=left,
        right=right,
        intercept=0.0,
        additive_scale=1.0,
        interaction_scale=1.0,
    )
    return _calibrated(unscaled, rng)


def transformed(integers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return log1p(max(value, 0)), as the prepared data has it."""
    return np.log1p(np.maximum(integers, 0).astype(np.float64))


def _draw_integers(rng: np.random.Generator) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Draw 13 heavy-tailed distributions: rounded log-normals, some with negatives, some often missing."""
    normal = NormalDist()
    z = np.array([normal.inv_cdf((k + 0.5) / _ENTRIES) for k in range(_ENTRIES)])
    location = rng.uniform(0.5, 4.5, INTEGERS)
    spread = rng.uniform(0.8, 1.6, INTEGERS)
    values = np.floor(np.exp(location[:, None] + spread[:, None] * z)).astype(np.int64)
    values[1] -= 2  # Criteo's second integer goes below zero
    missing = rng.choice([0.0, 0.0, 0.02, 0.05, 0.2, 0.4], INTEGERS)
    present = np.ones((INTEGERS, _ENTRIES), np.bool_)
    for feature in range(INTEGERS):
        present[feature, rng.permutation(_ENTRIES)[: int(missing[feature] * _ENTRIES)]] = False
    return np.where(present, values, 0), present


def _draw_integer_effects(
    rng: np.random.Generator, integers: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Draw a smooth, saturating effect of each integer's transformed value, with mean 0."""
    t = transformed(integers)
    standard = (t - t.mean(axis=1, keepdims=True)) / t.std(axis=1, keepdims=True)
    strength = rng.choice([-1.0, 1.0], (INTEGERS, 1)) * rng.uniform(0.15, 0.45, (INTEGERS, 1))
    effects = strength * np.tanh(standard / 2.0) * 2.0
    return np.asarray(effects - effects.mean(axis=1, keepdims=True), np.float32)


def _draw_ids(rng: np.random.Generator, settings: TeacherSettings) -> npt.NDArray[np.uint16]:
    """Draw one feature's table of ids: Zipf-distributed, a share of 0 (missing), every id at least once."""
    missing = int(rng.choice([0.0, 0.0, 0.0, 0.03, 0.1, 0.25]) * _ENTRIES)
    weights = 1.0 / np.arange(1, settings.ids_per_feature + 1) ** settings.zipf_exponent
    ends = np.rint(np.cumsum(weights) / weights.sum() * (_ENTRIES - missing)).astype(np.int64)
    counts = np.diff(ends, prepend=0)
    return np.repeat(np.arange(settings.ids_per_feature + 1), [missing, *counts]).astype(np.uint16)


def _draw_codes(rng: np.random.Generator, ids: int) -> npt.NDArray[np.uint32]:
    codes = np.unique(rng.integers(0, 1 << 32, 2 * (ids + 1), dtype=np.uint32))
    return rng.permutation(codes)[: ids + 1]


def _centred(values: npt.NDArray[np.float64], table: npt.NDArray[np.uint16]) -> npt.NDArray[np.float64]:
    """Shift values [..., ids + 1] to mean 0 over the ids that are present; missing has no effect."""
    counts = np.bincount(table, minlength=values.shape[-1]).astype(np.float64)
    counts[0] = 0.0
    centred: npt.NDArray[np.float64] = values - (values @ counts / counts.sum())[..., None]
    centred[..., 0] = 0.0
    return centred


def _damping(settings: TeacherSettings) -> npt.NDArray[np.float64]:
    """Return the weight of each id relative to the most frequent one: [ids + 1]."""
    ranks = np.maximum(np.arange(settings.ids_per_feature + 1), 1)
    return ranks.astype(np.float64) ** -settings.rare_damping


def _draw_category_effects(
    rng: np.random.Generator, ids: npt.NDArray[np.uint16], settings: TeacherSettings
) -> npt.NDArray[np.float32]:
    shape = (CATEGORIES, settings.ids_per_feature + 1)
    effects = rng.normal(0.0, 0.3, shape) * _damping(settings)
    return np.stack([_centred(e, t) for e, t in zip(effects, ids, strict=True)]).astype(np.float32)


def _draw_latent(
    rng: np.random.Generator, ids: npt.NDArray[np.uint16], settings: TeacherSettings
) -> npt.NDArray[np.float32]:
    """Draw one side's centred latent vectors: [interactions, rank, ids + 1], components of variance 1."""
    shape = (settings.interactions, settings.rank, settings.ids_per_feature + 1)
    vectors = rng.normal(size=shape) * _damping(settings)
    latent = np.empty(shape, np.float32)
    for pair, table in enumerate(ids):
        centred = _centred(vectors[pair], table)
        latent[pair] = centred / centred[:, table].std(axis=1, keepdims=True)
    return latent


def _spread(
    left: npt.NDArray[np.float32], right: npt.NDArray[np.float32], ids: npt.NDArray[np.uint16]
) -> npt.NDArray[np.float32]:
    """Return the standard deviation of each pair's inner product: [interactions]."""
    variances = [
        (np.cov(one[:, i], bias=True) * np.cov(other[:, j], bias=True)).sum()
        for one, other, (i, j) in zip(left, right, ids, strict=True)
    ]
    return np.sqrt(np.array(variances, np.float32))


def _calibrated(teacher: Teacher, rng: np.random.Generator) -> Teacher:
    """Return the teacher with the intercept and scales that reach the targets, found on a large sample.

    A damped fixed-point iteration: an AUC's distance from one half grows with the spread of its scores, so
    each spread is multiplied by the ratio of the wanted distance to the measured one.
    """
    goal = teacher.settings
    shape = (INTEGERS + CATEGORIES, _CALIBRATION_ROWS)
    entries = rng.integers(0, _ENTRIES, size=shape, dtype=np.uint16)
    additive, interaction = teacher.additive(entries), teacher.interaction(entries)
    additive_std, interaction_std = float(additive.std()), float(interaction.std())
    linear_spread, hidden_spread, intercept = 1.3, 0.8, -1.5
    for _ in range(_CALIBRATION_STEPS):
        logits = additive * (linear_spread / additive_std)
        logits += interaction * (hidden_spread / interaction_std) + intercept
        probability = sigmoid(logits)
        rate = float(probability.mean())
        intercept += float(np.log(goal.base_rate / rate * (1.0 - rate) / (1.0 - goal.base_rate)))
        bayes, linear = auc(logits, probability), auc(additive, probability)
        linear_spread *= _step(goal.target_linear_auc, linear)
        gained = (goal.target_bayes_auc - goal.target_linear_auc) / (bayes - linear)
        hidden_spread *= float(np.clip(np.sqrt(gained), 0.8, 1.25))
    return replace(
        teacher,
        intercept=intercept,
        additive_scale=linear_spread / additive_std,
        interaction_scale=hidden_spread / interaction_std,
    )


def _step(wanted: float, found: float) -> float:
    ratio = (wanted - 0.5) / (found - 0.5)
    return math.pow(min(max(ratio, 0.8), 1.25), 1.3)

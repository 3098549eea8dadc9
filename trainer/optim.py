"""Optimizers: row-wise Adagrad fused into the tables' backward pass, and one for the dense part."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn
    from torch.optim import Optimizer
    from torchrec.distributed.model_parallel import DistributedModelParallel

    from trainer.config import TrainerConfig


def fuse_table_optimizer(tables: nn.Module, config: TrainerConfig) -> None:
    """Tables update themselves while gradients flow back; called before sharding."""
    settings: dict[str, Any] = {"lr": config.learning_rate, "eps": config.optimizer_eps}
    apply_optimizer_in_backward(RowWiseAdagrad, tables.parameters(), settings)


def make_dense_optimizer(parameters: Iterable[nn.Parameter], config: TrainerConfig) -> Optimizer:
    """Make the dense part's optimizer; fused kernels do one pass over each weight."""
    settings: dict[str, Any] = {
        "lr": config.dense_learning_rate,
        "weight_decay": config.weight_decay,
        "fused": True,
    }
    if config.dense_optimizer == "sgd":
        return torch.optim.SGD(parameters, **settings)
    settings["eps"] = config.optimizer_eps
    if config.dense_optimizer == "adam":
        return _with_state(torch.optim.AdamW(parameters, **settings))
    return torch.optim.Adagrad(parameters, **settings)


def _with_state(optimizer: Optimizer) -> Optimizer:
    """Make the moments now: an optimizer that makes them in its first step silently ignores loaded ones."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    return optimizer


class Schedule:
    """The factor on the learning rates: a linear rise, then level or falling to 0 at the end of the run."""

    def __init__(self, config: TrainerConfig, total_steps: int) -> None:
        self.warmup = config.lr_warmup_steps
        self.decay = config.lr_decay
        self.total = total_steps

    def factor(self, step: int) -> float:
        """Factor for the step-th step, counted from 0; never 0 within the run."""
        rise = min(1.0, (step + 1) / (self.warmup + 1))
        progress = max(0, step - self.warmup) / max(1, self.total - self.warmup)
        if self.decay == "linear":
            return rise * max(0.0, 1.0 - progress)
        if self.decay == "cosine":
            return rise * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
        return rise


class Optimizers:
    """Both optimizers under one schedule."""

    def __init__(
        self, model: DistributedModelParallel, dense: Optimizer, config: TrainerConfig, schedule: Schedule
    ) -> None:
        self.fused = model.fused_optimizer
        self.dense = dense
        self.schedule = schedule
        self.rates = (config.learning_rate, config.dense_learning_rate)
        self._factor = 1.0

    @property
    def learning_rate(self) -> float:
        """Of the tables, now."""
        return self.rates[0] * self._factor

    def prepare(self, step: int) -> None:
        """Set the learning rates of a step; costs nothing where they stay."""
        factor = self.schedule.factor(step)
        if factor == self._factor:
            return
        self._factor = factor
        for group in self.fused.param_groups:
            group["lr"] = self.rates[0] * factor
        self.fused.step()  # tells the kernels the new rate; weights change in backward only
        for group in self.dense.param_groups:
            group["lr"] = self.rates[1] * factor

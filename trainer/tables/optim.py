"""Optimizers: those of the tables, fused into backward or for replicas, and that of the dense part."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torchrec.optim
from torch.distributed.optim import _apply_optimizer_in_backward as apply_optimizer_in_backward
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

from trainer.tables.kernels import set_iteration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn
    from torch.optim import Optimizer
    from torchrec.distributed.model_parallel import DistributedModelParallel

    from trainer.base.config import TrainerConfig
    from trainer.tables.replicas import ReplicaOptimizer

SMALLEST_FACTOR = 1e-6  # the minimum of polynomial decay
FIRST_SCALE = 2.0**16
GROWTH_STEPS = 2000


TABLE_OPTIMIZERS = {
    "sgd": torchrec.optim.SGD,
    "adagrad": torchrec.optim.Adagrad,
    "rowwise_adagrad": RowWiseAdagrad,
    "adam": torchrec.optim.Adam,
    "partial_rowwise_adam": torchrec.optim.PartialRowWiseAdam,
}


def fuse_table_optimizer(
    tables: nn.Module, config: TrainerConfig, device: torch.device, *, ranks: int
) -> None:
    """Fuse the table optimizer into backward; call it before sharding.

    fbgemm has no Adam for CPUs and refuses to create it, so SGD takes its place there:
    trainer.tables.host_tables does the updates on CPUs, with separate states.
    """
    kind = config.table_optimizer
    if device.type == "cpu" and "adam" in kind:
        kind = "sgd"
    settings: dict[str, Any] = {"lr": config.learning_rate}
    if kind != "sgd":
        settings["eps"] = config.table_eps(ranks)
    apply_optimizer_in_backward(TABLE_OPTIMIZERS[kind], tables.parameters(), settings)


def make_dense_optimizer(parameters: Iterable[nn.Parameter], config: TrainerConfig) -> Optimizer:
    """Return the dense part's optimizer, with fused kernels, which make one pass over each weight."""
    parameters = list(parameters)
    settings: dict[str, Any] = {
        "lr": config.dense_learning_rate,
        "weight_decay": config.weight_decay,
        "fused": True,
    }
    if config.dense_optimizer == "sgd":
        return torch.optim.SGD(parameters, **settings)
    settings["eps"] = config.dense_eps
    if config.dense_optimizer in ("adam", "adamw"):
        return _with_state(torch.optim.AdamW(parameters, **settings))
    # Without a fused kernel torch chooses: for all weights at once on GPUs, where False means one by one.
    settings["fused"] = all(_has_fused_adagrad(each.device) for each in parameters) or None
    return torch.optim.Adagrad(parameters, **settings)


@cache
def _has_fused_adagrad(device: torch.device) -> bool:
    """Whether torch has the fused update for a device: 2.11 refuses it on GPUs, and only a step shows it."""
    weight = torch.nn.Parameter(torch.zeros(1, device=device))
    weight.grad = torch.zeros_like(weight)
    try:
        torch.optim.Adagrad([weight], fused=True).step()
    except RuntimeError:
        return False
    return True


def _with_state(optimizer: Optimizer) -> Optimizer:
    """Create the moments now: torch creates them in the first step, which would silently drop loaded ones."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
    return optimizer


class Schedule:
    """The factor on the learning rates: a linear warm-up, then constant or decaying to 0."""

    def __init__(self, config: TrainerConfig, total_steps: int) -> None:
        self.warmup = config.lr_warmup_steps
        self.decay = config.lr_decay
        self.total = total_steps
        self.power = config.lr_decay_power
        self.decay_start = self.warmup if config.lr_decay_start is None else config.lr_decay_start
        self.decay_steps = config.lr_decay_steps or max(1, total_steps - self.decay_start)

    def factor(self, step: int) -> float:
        """Return the factor of a step, counted from 0; it is never 0 within the run."""
        rise = min(1.0, (step + 1) / (self.warmup + 1))
        progress = max(0, step - self.warmup) / max(1, self.total - self.warmup)
        if self.decay == "linear":
            return rise * max(0.0, 1.0 - progress)
        if self.decay == "cosine":
            return rise * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
        if self.decay == "polynomial":
            left = 1.0 - max(0, step - self.decay_start) / self.decay_steps
            return rise * max(SMALLEST_FACTOR, max(0.0, left) ** self.power)
        return rise


class LossScaler:
    """The loss scale of fp16, which rounds small gradients to 0: multiplies the loss, divides the gradients.

    The scale halves when a gradient overflows, and that step's dense update is skipped. It doubles after
    GROWTH_STEPS steps without an overflow. It is 1 unless the precision is fp16.
    """

    def __init__(self, *, active: bool, device: torch.device) -> None:
        self.active = active
        self.scale = torch.full((), FIRST_SCALE if active else 1.0, device=device)
        self.good_steps = torch.zeros((), dtype=torch.int32, device=device)

    @torch.no_grad()
    def unscale(self, gradients: list[torch.Tensor]) -> torch.Tensor | None:
        """Divide the gradients by the scale, in place, and update it.

        Returns 1.0 (0-d, on the device) if a gradient overflowed, or else 0.0; None without a scale.
        """
        if not self.active:
            return None
        found = torch.zeros((), device=self.scale.device)
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, 1.0 / self.scale)
        torch._amp_update_scale_(self.scale, self.good_steps, found, 2.0, 0.5, GROWTH_STEPS)
        return found


class DenseUpdate:
    """The dense part's optimizer with loss scaling, clipping and accumulation; also updates replicas.

    It has an optimizer's interface, because torchrec's pipelines call it as one. No step waits for a GPU:
    whether a gradient overflowed is known there alone, and the optimizer's kernels skip the update by it.
    When gradients are accumulated, a step that overflowed counts and adds nothing.
    """

    def __init__(
        self, optimizer: Optimizer, replicas: ReplicaOptimizer, scaler: LossScaler, config: TrainerConfig
    ) -> None:
        self.optimizer = optimizer
        self.param_groups = optimizer.param_groups
        self.replicas = replicas
        self.scaler = scaler
        self.limit = config.gradient_clip_norm
        self.every = config.gradient_accumulation_steps
        self.parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.collected = [torch.zeros_like(parameter) for parameter in self.parameters if self.every > 1]
        self.collected_steps = torch.zeros((), dtype=torch.int64)
        self.lost = torch.zeros((), device=scaler.scale.device)  # collected steps that overflowed

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002 - an optimizer's signature
        """Clear the last step's gradients; accumulated ones are kept."""
        self.optimizer.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        """Update the weights, or accumulate the gradients if the update is not due yet."""
        self.replicas.step()
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        found = self.scaler.unscale(gradients)
        if self.every > 1:
            if found is not None:
                _clear(gradients, found)
                self.lost += found
            if not self._collect(gradients):
                return
            found = None if found is None else self._lost_all()
        if self.limit is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.limit)
        self._update(gradients, found)

    def _update(self, gradients: list[torch.Tensor], overflowed: torch.Tensor | None) -> None:
        """Update the weights, unless `overflowed` is 1."""
        fused: Any = self.optimizer
        if overflowed is None:
            fused.step()
        elif self.optimizer.defaults["fused"]:
            fused.found_inf = overflowed  # as torch's GradScaler does
            fused.step()
            del fused.found_inf
        elif not self.optimizer.defaults["weight_decay"]:  # Adagrad: a gradient of 0 changes nothing
            _clear(gradients, overflowed)
            fused.step()
        elif not bool(overflowed):
            fused.step()

    def _lost_all(self) -> torch.Tensor:
        lost = (self.lost >= self.every).float()
        self.lost.zero_()
        return lost

    def _collect(self, gradients: list[torch.Tensor]) -> bool:
        """Accumulate the gradients; True if complete: then the means have replaced the gradients."""
        torch._foreach_add_(self.collected, gradients, alpha=1.0 / self.every)
        self.collected_steps += 1
        if int(self.collected_steps) < self.every:
            return False
        torch._foreach_copy_(gradients, self.collected)
        torch._foreach_zero_(self.collected)
        self.collected_steps.zero_()
        return True


@torch.no_grad()
def _clear(gradients: list[torch.Tensor], overflowed: torch.Tensor) -> None:
    """Set the gradients to 0 if `overflowed` is 1."""
    for gradient in gradients:
        gradient.copy_(torch.where(overflowed > 0, 0.0, gradient))


class Optimizers:
    """All optimizers under one schedule."""

    def __init__(
        self, model: DistributedModelParallel, dense: DenseUpdate, config: TrainerConfig, schedule: Schedule
    ) -> None:
        self.model = model
        self.fused = model.fused_optimizer
        self.dense = dense
        self.schedule = schedule
        self.rates = (config.learning_rate, config.dense_learning_rate)
        self._factor = 1.0
        self._counted = False

    def count_again(self) -> None:
        """Set the kernels' numbers of steps in the next one: other look-ups have counted, too."""
        self._counted = False

    @property
    def learning_rate(self) -> float:
        """The tables' current learning rate."""
        return self.rates[0] * self._factor

    def prepare(self, step: int) -> None:
        """Set the learning rates of a step; does nothing if they have not changed."""
        if not self._counted:
            self._counted = True
            set_iteration(self.model, step)
            self.dense.replicas.steps = step
        factor = self.schedule.factor(step)
        if factor == self._factor:
            return
        self._factor = factor
        for group in self.fused.param_groups:
            group["lr"] = self.rates[0] * factor
        self.dense.replicas.learning_rate = self.rates[0] * factor
        self.fused.step()  # passes the new rate to the kernels; weights change in backward only
        for group in self.dense.param_groups:
            group["lr"] = self.rates[1] * factor

"""Averages of gradients in the order of ranks, independent of their place in a buffer, for `--deterministic`.

An all-reduce cuts its buffer into pieces and sums each piece from a different rank on, so the rounding of an
element depends on its place. DDP rearranges its buffers after its first step. So a resumed run would round
the gradients of that step differently from a run that continues, and with three or more ranks it would end
with another model. (DDP's first step also multiplies by 1/ranks where later ones divide.) The result here
does not depend on the network's topology either, as nccl's choice of an algorithm does.
"""

import torch
from torch import Tensor, distributed, nn
from torch.futures import Future
from torch.nn import functional

from trainer.tables.kernels import averaging_parts


def fix_order_of_sums(model: nn.Module) -> None:
    """Make every DDP in a model average gradients in the order of ranks; call it before the first step."""
    for part in averaging_parts(model):
        part.register_comm_hook(part.process_group, _average)


# DDP compares these annotations with the types, so this module must not postpone annotations.
def _average(group: distributed.ProcessGroup, bucket: distributed.GradBucket) -> Future[Tensor]:
    """DDP's communication hook: average one of its buffers over the ranks."""
    buffer = bucket.buffer()
    average_in_order(buffer, group)
    done: Future[Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else None)
    done.set_result(buffer)
    return done


def average_in_order(buffer: Tensor, group: distributed.ProcessGroup) -> None:
    """Average a flat tensor over the ranks, in place, each element from rank 0 on; collective.

    Every rank sums one share of the elements, so as many bytes are sent as in an all-reduce.
    """
    ranks = group.size()
    share = -(-buffer.numel() // ranks)
    padded = functional.pad(buffer, (0, share * ranks - buffer.numel()))
    received = torch.empty_like(padded)
    distributed.all_to_all_single(received, padded, group=group)
    total, *others = received.view(ranks, share)
    for other in others:
        total += other
    total /= ranks
    distributed.all_gather_into_tensor(padded, total.contiguous(), group=group)
    buffer.copy_(padded[: buffer.numel()])

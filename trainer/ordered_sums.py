"""Gradients added up rank after rank, wherever they lie in a buffer: what `--deterministic` takes.

An all-reduce cuts its buffer into pieces and adds up each of them from another rank on, so that an element's
rounding depends on its place. DDP lays its buffers out anew after its first step; hence a run that is resumed
would round the gradients of that step unlike a run that goes on, and three ranks or more would end with
another model. (Its first step also multiplies by 1/ranks where later ones divide.) The machines' places play
no part here either, which they do in nccl's choice of a way.
"""

import torch
from torch import Tensor, distributed, nn
from torch.futures import Future
from torch.nn import functional

from trainer.kernels import averaging_parts


def fix_order_of_sums(model: nn.Module) -> None:
    """Have every DDP in a model average gradients in the order of ranks; before the first step."""
    for part in averaging_parts(model):
        part.register_comm_hook(part.process_group, _average)


# DDP compares these annotations with the types, so this module's are no strings.
def _average(group: distributed.ProcessGroup, bucket: distributed.GradBucket) -> Future[Tensor]:
    """Average one of DDP's buffers over the ranks."""
    buffer = bucket.buffer()
    average_in_order(buffer, group)
    done: Future[Tensor] = Future(devices=[buffer.device] if buffer.is_cuda else None)
    done.set_result(buffer)
    return done


def average_in_order(buffer: Tensor, group: distributed.ProcessGroup) -> None:
    """Average a flat tensor over the ranks, in place, each element from rank 0 on; collective.

    Every rank adds up one share of the elements, so as many bytes travel as in an all-reduce.
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

"""`python -m trainer.plan`: a sharding plan for other machines than this one.

Needs no GPU and no other ranks, because the model is made on the meta device. Table sizes come from the
flags (`--num_embeddings_per_feature`), otherwise from the dataset.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any, NoReturn

from trainer.base.arguments import parse_arguments
from trainer.base.console import guarded, importing_torch
from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer.base.config import TrainerConfig
    from trainer.models.model import ModelShape

DEFAULT_GB = {"cuda": (80.0, 200.0), "cpu": (0.0, 64.0)}  # of GPU and host memory a rank, unless capped
CRITEO_DENSE = 13
TASK_USAGE = "every flag of `python -m trainer` is taken too, such as --embedding_dim or --sharding_types"


class _PlanParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; `python -m trainer.plan --help` lists the flags")


def main(argv: Sequence[str]) -> int:
    """Make the plan and print it; return the exit code of the process."""
    return guarded(lambda: _main(argv))


def _main(argv: Sequence[str]) -> int:
    given, rest = _make_parser().parse_known_args(argv)
    config = parse_arguments(rest).config
    with importing_torch():
        from trainer.loop.elastic import fit_batch  # noqa: PLC0415 - torch takes seconds to import
        from trainer.sharding.sharding import describe  # noqa: PLC0415 - as above
    config = fit_batch(config, given.world_size)
    plan, document = make_offline_plan(
        config, given.world_size, given.local_world_size or min(given.world_size, 8), given.target, given.gpu
    )
    print(json.dumps(document, indent=1) if given.json else "\n".join(describe(plan)))
    return 0


def make_offline_plan(
    config: TrainerConfig, world_size: int, local_world_size: int, device: str, card: str | None = None
) -> tuple[Any, dict[str, Any]]:
    """Return the plan, and its JSON document with each rank's bytes of weights.

    Raises:
        ConfigError: the sizes do not fit one another, or the card is not known.
    """
    import torch  # noqa: PLC0415 - torch takes seconds to import

    from trainer.models.model import TrainTask, make_model  # noqa: PLC0415 - as above
    from trainer.sharding.cards import speeds_of  # noqa: PLC0415 - as above
    from trainer.sharding.planfile import FROM_CHECKPOINT, to_document  # noqa: PLC0415 - as above
    from trainer.sharding.sharding import choose_plan  # noqa: PLC0415 - as above
    from trainer.sharding.topology import GB, Machines  # noqa: PLC0415 - as above
    from trainer.tables.optim import fuse_table_optimizer  # noqa: PLC0415 - as above

    if world_size % local_world_size:
        raise ConfigError(
            f"world_size is {world_size}, but it must be a multiple of local_world_size {local_world_size}"
        )
    if card is not None and speeds_of(card) is None:
        raise ConfigError(
            f"gpu is {card!r}, whose speeds are not known; give the name that nvidia-smi shows, such as "
            "'NVIDIA H200', or leave it out"
        )
    gpu_gb, host_gb = DEFAULT_GB[device]
    machines = Machines(
        world_size=world_size,
        local_world_size=local_world_size,
        device=device,
        hbm_bytes=int((config.hbm_cap_gb or gpu_gb) * GB),
        ddr_bytes=int((config.ddr_cap_gb or host_gb) * GB),
        card=card,
    )
    if config.sharding_plan == FROM_CHECKPOINT:
        raise ConfigError(
            f"sharding_plan is {FROM_CHECKPOINT}, but this command reads no checkpoint; give the "
            "sharding_plan.json of the run"
        )
    shape = _model_shape(config)
    task = TrainTask(make_model(config, shape, torch.device("meta")))
    fuse_table_optimizer(task.model.embeddings, config, torch.device(device), ranks=world_size)
    plan = choose_plan(task, shape, config, machines)
    document = to_document(plan, shape, machines)
    element = 2 if config.embedding_weight_precision == "fp16" else 4
    return plan, {**document, "weight_bytes_by_rank": _bytes_by_rank(document, element)}


def _bytes_by_rank(document: dict[str, Any], element: int) -> list[int]:
    held = [0] * document["world_size"]
    for entry in document["tables"].values():
        if entry["sharding_type"] == "data_parallel":
            held = [size + entry["rows"] * entry["columns"] * element for size in held]
        for piece in entry["shards"]:
            held[piece["rank"]] += piece["rows"][1] * piece["columns"][1] * element
    return held


def _model_shape(config: TrainerConfig) -> ModelShape:
    from trainer.data.formats.open import open_source  # noqa: PLC0415 - torch takes seconds to import
    from trainer.loop.setup import make_shape, model_shape  # noqa: PLC0415 - as above

    sizes = config.num_embeddings_per_feature
    if sizes is not None:
        tables = {f"C{index + 1}": rows for index, rows in enumerate(sizes)}
        return make_shape(config, [f"I{index + 1}" for index in range(CRITEO_DENSE)], tables)
    if config.dataset_path is None and config.dataset is None:
        raise ConfigError(
            "the tables' sizes are not known; give --num_embeddings_per_feature N1,N2,... or "
            "--dataset_path DIR"
        )
    return model_shape(config, open_source(config))


def _make_parser() -> argparse.ArgumentParser:
    parser = _PlanParser(
        prog="python -m trainer.plan",
        description="Plan where embedding tables lie on machines that need not be here.",
        epilog=f"{TASK_USAGE}. Exit codes: 0 planned, 64 bad configuration or tables that do not fit, 65 bad "
        "data, 1 anything else.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print the plan as a file for --sharding_plan")
    parser.add_argument(
        "--world_size", "--world-size", type=_positive, required=True, metavar="N", help="ranks"
    )
    parser.add_argument(
        "--local_world_size", "--local-world-size", type=_positive, metavar="N", help="ranks a machine [8]"
    )
    parser.add_argument(
        "--target", choices=("cuda", "cpu"), default="cuda", help="what the ranks are [cuda: 80 GB each]"
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        help="as nvidia-smi shows it ('NVIDIA H200'), for its speeds [torchrec's V100]",
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, but it is {text!r}")
    return int(text)

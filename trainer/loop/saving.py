"""Saving and resuming a run: its state, progress, samples seen, configuration and fingerprint."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from trainer.base.config import DLRM_MODELS, EXPERT_MODELS
from trainer.base.errors import CheckpointError, DatasetError
from trainer.checkpoint.save.saves import SavingOptions
from trainer.checkpoint.store.near import NearOptions
from trainer.checkpoint.vocabulary import in_folder
from trainer.data import encoding as encodings
from trainer.loop.progress import Progress
from trainer.sharding.digest import SampleDigest
from trainer.sharding.planfile import IN_CHECKPOINT
from trainer.warm.start import begin_with

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.base.config import TrainerConfig
    from trainer.base.distributed import World
    from trainer.checkpoint import Checkpointer
    from trainer.checkpoint.save.saves import CheckpointReport
    from trainer.data.source import SampleSource
    from trainer.loop.learner import Learner
    from trainer.models.model import ModelShape
    from trainer.warm.start import WarmReport

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resumed:
    """The progress and samples of the attempts before, from a checkpoint."""

    progress: Progress
    seen: SampleDigest  # on rank 0 only


def resumed_from(extra: Mapping[str, Any], place: str) -> Resumed:
    """Return the progress in the state of a run that a checkpoint has.

    Args:
        extra: the state.
        place: where the checkpoint is, for errors.

    Raises:
        CheckpointError: it has none, or it is malformed.
    """
    try:
        seen = SampleDigest.from_state(extra["samples"])
        return Resumed(Progress.from_json(extra["progress"], restarts=restarts()), seen)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(
            f"{place}: the progress in its newest checkpoint cannot be read: {what}; resume with the version "
            "of cloudrec that wrote it, or take another checkpoint_dir, where init_from can begin with this "
            "model"
        ) from error


class Saving:
    """Saves a run and resumes it; every method is collective."""

    def __init__(
        self,
        *,
        config: TrainerConfig,
        world: World,
        dataset: SampleSource,
        learner: Learner,
        checkpointer: Checkpointer,
    ) -> None:
        self.config = config
        self.world = world
        self.dataset = dataset
        self.learner = learner
        self.checkpointer = checkpointer
        self.step: int | None = None  # of the newest checkpoint that this run saved or resumed from
        self.bytes = 0  # of the newest checkpoint that this run saved
        self.warm: WarmReport | None = None  # what this attempt took from another model
        self.begun: int | None = None  # the step of the newest checkpoint that this run began to save

    def save(self, progress: Progress, seen: SampleDigest, *, wait: bool) -> list[CheckpointReport]:
        """Save this step; with `wait` it is committed on return, otherwise `poll` reports it later.

        Returns the reports of all saves committed since the last call of `save` or `poll`, and adds their
        seconds to `progress`.
        """
        self.begun = progress.step
        extra = {
            "progress": progress.to_json(),
            "samples": seen.merge(self.world.control).state(),
            "config": self.config.model_dump(
                mode="json", exclude={"model_source"}
            ),  # with "model", what scoring needs
            "model": asdict(self.learner.shape),
            "encoding": None if self.dataset.encoding is None else dict(self.dataset.encoding.document),
            IN_CHECKPOINT: self.learner.plan_document,
        }
        report = self.checkpointer.save(
            progress.step,
            self.learner.state,
            extra,
            self._fingerprint(),
            # A state that began with another model cannot be drawn again: it is saved whole.
            initial=None if self.config.init_from else self.learner.initial,
            wait=wait,
        )
        return self._note(progress, [] if report is None else [report])

    def poll(self, progress: Progress, *, wait: bool = False) -> list[CheckpointReport]:
        """Return the reports of saves committed since the last call; with `wait`, first waits for a save."""
        return self._note(progress, [], wait=wait)

    def _note(
        self, progress: Progress, newest: list[CheckpointReport], *, wait: bool = False
    ) -> list[CheckpointReport]:
        reports = self.checkpointer.poll(wait=wait) + newest
        for report in reports:
            self.step, self.bytes = report.step, report.bytes
            progress.checkpoint_s += report.seconds
        return reports

    def resume(self) -> Resumed | None:
        """Load the newest intact checkpoint into the learner; None if there is nothing to resume from.

        The learner's tables need not be initialised before: without a checkpoint, this method does it, with
        what `init_from` has of them.

        Raises:
            CheckpointError: the checkpoint cannot be resumed from, or the configuration forbids it.
            DatasetError: the checkpoint's data has another encoding.
        """
        resumed = self._resume()
        self._keep_vocabulary()
        if resumed is None:
            self.learner.draw_tables()
            if self.config.init_from is not None:
                with self.learner.filling() as state:
                    self.warm = begin_with(state, self.learner.shape, self.config, self.dataset, self.world)
        return resumed

    def _resume(self) -> Resumed | None:
        if not self.config.resume:
            self._refuse_to_overwrite()
            return None
        if not self.dataset.resumable:
            self._refuse_to_continue()
            return None
        self._check_encoding()
        with self.learner.filling() as state:
            loaded = self.checkpointer.load_newest(state, self._fingerprint(), initial=self.learner.initial)
        if loaded is None:
            return None
        self.step, extra = loaded
        resumed = resumed_from(extra, self.config.checkpoint_uri)
        # Digests are summed over ranks, so only one may contain the past.
        return resumed if self.world.is_first else replace(resumed, seen=SampleDigest())

    def near_bytes(self) -> int:
        """Return the bytes that all ranks together read from their machines' disks. Collective."""
        return sum(self.world.gather_lists([self.checkpointer.near_bytes]))

    def foresee(self) -> None:
        """Prepare the first save in the background; call it about half an interval before."""
        self.checkpointer.foresee(self.learner.entries)

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written; the same on all ranks."""
        return self.checkpointer.is_saving

    def last_good(self) -> str:
        """Return a sentence that names the last committed checkpoint.

        A save in progress is waited for in a world of one only: waiting is collective, and other ranks may
        not have the error that this is called for.
        """
        if self.world.size == 1:
            with suppress(CheckpointError):
                for report in self.checkpointer.poll(wait=True):
                    self.step, self.bytes = report.step, report.bytes
        if self.step is None:
            return "no checkpoint was saved before it"
        return f"the last good checkpoint is that of step {self.step} in {self.config.checkpoint_uri}"

    def _check_encoding(self) -> None:
        """Refuse data with another encoding than the checkpoint's: equal ids would mean other values."""
        extra = self.checkpointer.newest_extra()
        if extra is None:
            return
        where, encoding = self.config.checkpoint_uri, self.dataset.encoding
        kept = encodings.of_model(extra, where)
        if kept is not None and encoding is not None and kept.digest != encoding.digest:
            raise DatasetError(
                f"the data is encoded otherwise than that of the checkpoint in {where}: the digest of its "
                f"encoding is {encoding}, the checkpoint's is {kept}, so equal ids mean different values; "
                "give the dataset that the run began with, encode the same files as it was (`cloudrec data "
                "prepare --like DATASET SOURCE OUT`), or take another checkpoint_dir, where init_from can "
                "begin with this model and matches rows by value"
            )
        if "encoding" not in extra or (kept is None) != (encoding is None):
            _LOG.warning(
                "how the data of %s was encoded is unknown, so whether ids mean the same in both cannot be "
                "checked; the run resumes from %s anyway",
                "the checkpoint" if kept is None else "this run",
                where,
            )

    def _keep_vocabulary(self) -> None:
        """Copy the vocabulary beside the checkpoints: the dataset may be deleted before it is needed."""
        encoding, folder = self.dataset.encoding, self.dataset.vocabulary_at
        if encoding is not None and encoding.files and folder is not None:
            self.checkpointer.keep(in_folder(folder, encoding))

    def _refuse_to_overwrite(self) -> None:
        steps = self.checkpointer.steps()
        if steps:
            raise CheckpointError(
                f"{self.config.checkpoint_uri} holds checkpoints up to step {steps[-1]}, and resume is "
                "off; take another checkpoint_dir, or leave resume on to resume from them"
            )

    def _refuse_to_continue(self) -> None:
        step = self.checkpointer.newest()
        if step is not None:
            raise CheckpointError(
                f"{self.config.checkpoint_uri} holds a checkpoint of step {step}, but the loader "
                f"{self.config.dataset} cannot start where that stopped (resumable is False); take another "
                "checkpoint_dir to start again"
            )

    def _fingerprint(self) -> dict[str, Any]:
        """Return the values that must be equal in a checkpoint to resume from it."""
        return {
            "dataset": self.dataset.digest,
            "num_embeddings": self.learner.shape.num_embeddings,
            "embedding_dim": self.config.embedding_dim,
            **_of_model(self.learner.shape),
            **_of_tasks(self.learner.shape, self.config),
            "dense_arch_layer_sizes": list(self.config.dense_arch_layer_sizes),
            "over_arch_layer_sizes": list(self.config.over_arch_layer_sizes),
            "interaction": self.learner.shape.interaction,
            "table_optimizer": self.config.table_optimizer,
            "embedding_weight_precision": self.config.embedding_weight_precision,
            "dense_optimizer": self.config.dense_optimizer,
            "seed": self.config.seed,
            "shuffle": self.config.shuffle,
        }


def _of_model(shape: ModelShape) -> dict[str, Any]:
    """Return what a plain DLRM has not, so that its checkpoints stay as they are."""
    values = {
        "feature_tables": shape.feature_tables,
        "dims": shape.dims,
        "mean_pooled": list(shape.mean_pooled),
        "weighted": list(shape.weighted),
        "sequences": shape.sequences,
        "positions": shape.positions,
        "managed": list(shape.managed),
        "item": list(shape.item) if shape.model not in DLRM_MODELS else [],
        "model": None if shape.model in DLRM_MODELS else shape.model,
    }
    return {name: value for name, value in values.items() if value}


def _of_tasks(shape: ModelShape, config: TrainerConfig) -> dict[str, Any]:
    """Return what decides the weights of experts and the loss of several labels."""
    labels = [list(each) for each in zip(shape.tasks, shape.task_weights, strict=True)]
    found: dict[str, Any] = {"tasks": labels} if labels else {}
    if shape.model in EXPERT_MODELS:
        found["num_experts"] = config.num_experts
    if shape.model == "ple":
        found["num_extraction_layers"] = config.num_extraction_layers
    return found


def saving_options(config: TrainerConfig, world: World) -> SavingOptions:
    """Return the configured options for saves."""
    near, limit_gb = None, config.checkpoint_near_gb
    if config.checkpoint_near_dir:
        limit = None if limit_gb is None else int(limit_gb * 1e9) // world.local_size
        near = NearOptions(folder=config.checkpoint_near_dir, limit_bytes=limit, ranks=world.local_size)
    return SavingOptions(
        near=near,
        mode=config.checkpoint_mode,
        in_background=config.checkpoint_async,
        quantization=config.checkpoint_quantization,
        chain=config.checkpoint_chain,
        keep_every=config.keep_every_steps,
        scrub_bytes_per_s=config.checkpoint_verify_mb_s * 1e6,
    )


def restarts() -> int:
    """Return how often torchrun has restarted this rank."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))

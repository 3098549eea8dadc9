"""The training loop: load, step, save, report, stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainer.console import is_lost_peer, lost_peer
from trainer.distributed import join_world
from trainer.errors import FINISHED, STOPPED
from trainer.session import Session, open_session

if TYPE_CHECKING:
    from trainer.config import TrainerConfig


def run(config: TrainerConfig) -> int:
    """Train as configured, as one of the ranks; the exit code of the process."""
    with join_world(config.device, Path(config.output_dir)) as world, open_session(config, world) as session:
        try:
            return train(session)
        except RuntimeError as error:
            if not is_lost_peer(error):
                raise
            raise lost_peer(resumable=session.saving.step is not None) from error


def train(session: Session) -> int:
    """Step until the data ends or a stop is agreed on; what happens between steps happens on all ranks."""
    config = session.config
    for step in session.steps():
        session.advance(step)
        verdict = session.agree()
        if verdict.stop:
            session.leave(verdict)
            return STOPPED
        if session.due(config.eval_interval):
            session.evaluate()
            if session.target_reached:
                break
        if verdict.save:
            session.save(wait=False)
    metrics = session.evaluate()
    session.save()
    session.finish("finished", metrics)
    return FINISHED

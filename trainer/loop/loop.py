"""The training loop: load, step, save, report, stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec_contract.exit_codes import FINISHED, STOPPED
from trainer.base.console import is_lost_peer, lost_peer
from trainer.base.distributed import join_world
from trainer.loop.session.opening import open_session

if TYPE_CHECKING:
    from trainer.base.config import TrainerConfig
    from trainer.base.ending import RankEnding
    from trainer.loop.session.session import Session


def run(config: TrainerConfig, ending: RankEnding | None = None) -> int:
    """Train as one of the ranks; return the exit code of the process, and record the end in `ending`."""
    with join_world(config.device, Path(config.output_dir)) as world, open_session(config, world) as session:
        try:
            return train(session)
        except RuntimeError as error:
            if not is_lost_peer(error):
                raise
            raise lost_peer() from error
        finally:
            if ending is not None:
                _describe(session, ending)


def _describe(session: Session, ending: RankEnding) -> None:
    ending.step = session.course.progress.step
    ending.checkpoint = session.checkpoints.saving.step
    notice = session.end.stop.notice
    if notice is not None:
        ending.notice = notice.source
        ending.machine_leaves = notice.source in session.run.config.preemption_notices


def train(session: Session) -> int:
    """Train until the data ends, the target is reached, or the ranks agree to stop; return the exit code."""
    config = session.run.config
    for step in session.steps():
        session.advance(step)
        verdict = session.agree()
        if verdict.stop:
            session.leave(verdict)
            return STOPPED
        if session.course.is_due(config.eval_interval):
            session.evaluate()
            if session.target_reached:
                break
        if verdict.save:
            session.save()
    session.finish(session.evaluate())
    return FINISHED

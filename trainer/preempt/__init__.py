"""Requests to stop: signals and clouds' notices, recorded immediately and handled between two steps."""

from trainer.preempt.flag import SIGNALS, StopFlag
from trainer.preempt.notice import Notice, NoticeSource
from trainer.preempt.services import SERVICES, open_watches
from trainer.preempt.watch import NoticeWatch

__all__ = ["SERVICES", "SIGNALS", "Notice", "NoticeSource", "NoticeWatch", "StopFlag", "open_watches"]

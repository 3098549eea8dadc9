"""Requests to stop: signals and the clouds' notices, noticed at once and acted on between two steps."""

from trainer.preempt.flag import SIGNALS, StopFlag
from trainer.preempt.notice import Notice, NoticeSource
from trainer.preempt.services import SERVICES, open_watches
from trainer.preempt.watch import Watch

__all__ = ["SERVICES", "SIGNALS", "Notice", "NoticeSource", "StopFlag", "Watch", "open_watches"]

"""The lines of a run that another process reads: how far it is, and what a checkpoint took.

The trainer prints them, and the keeper of a managed cluster parses them: a pod's output is all of a run that
it may read. Both use this module, so that a changed text is a changed contract.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_RANK: Final = r"(?:\[rank \d{1,6}\] )?"  # the agent's mark of a line
_STEP: Final = re.compile(_RANK + r"step (\d{1,12})/(\d{1,12})  (loss .*)")
_SAVED: Final = re.compile(
    _RANK + r"step (\d{1,12}): (\w{1,40}) checkpoint, (\d{1,9}\.\d) MB written in (\d{1,6}\.\d\d) s\b"
)
_LONGEST: Final = 500  # characters of a line that are read


@dataclass(frozen=True, kw_only=True)
class StepLine:
    """How far a run is.

    Attributes:
        step: the steps that are done.
        steps: all steps of the run.
        values: the loss, and what else is shown.
    """

    step: int
    steps: int
    values: str

    def text(self) -> str:
        """Return the line, such as `step 1200/3780  loss 0.1931  2,594 samples/s`."""
        return f"step {self.step}/{self.steps}  {self.values}"

    @classmethod
    def parse(cls, line: str) -> StepLine | None:
        """Return what a line of a run's output says; None if it is no such line."""
        found = _STEP.match(line[:_LONGEST])
        if found is None or int(found[2]) == 0:
            return None
        return cls(step=min(int(found[1]), int(found[2])), steps=int(found[2]), values=found[3])


@dataclass(frozen=True, kw_only=True)
class SavedLine:
    """A checkpoint that is committed.

    Attributes:
        step: its step.
        content: what it has: full, differential or merged.
        megabytes: that were written, over all ranks, in units of 1e6 bytes.
        write_s: seconds from the cut to the commit.
    """

    step: int
    content: str
    megabytes: float
    write_s: float

    def text(self) -> str:
        """Return the line's beginning, such as `step 1100: full checkpoint, 12.0 MB written in 1.52 s`."""
        written = f"{self.megabytes:.1f} MB written in {self.write_s:.2f} s"
        return f"step {self.step}: {self.content} checkpoint, {written}"

    @classmethod
    def parse(cls, line: str) -> SavedLine | None:
        """Return what a line of a run's output says; None if it is no such line."""
        found = _SAVED.match(line[:_LONGEST])
        if found is None:
            return None
        return cls(step=int(found[1]), content=found[2], megabytes=float(found[3]), write_s=float(found[4]))


__all__ = ["SavedLine", "StepLine"]

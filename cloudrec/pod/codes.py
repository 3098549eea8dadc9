"""How a pod ends: what its engine's policy for failed pods goes by."""

from __future__ import annotations

from cloudrec.launch.verdict import BAD_CONFIG, BAD_DATA, STOPPED

FINISHED = 0
CRASHED = 1
UNFIT = 69  # EX_UNAVAILABLE: this node is not what the run needs
SPENT = 70  # EX_SOFTWARE: it crashed more often than is forgiven
AGAIN = STOPPED  # start another pod: it goes on from the newest checkpoint, or from the beginning
FINAL = (BAD_CONFIG, BAD_DATA, UNFIT)  # another pod would end likewise

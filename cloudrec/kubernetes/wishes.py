"""What a run asks of the keeper of a managed cluster, as labels of the run's object."""

from __future__ import annotations

NODES = "cloudrec/nodes"  # the nodes that the run needs
DEADLINE = "cloudrec/deadline-s"  # the seconds from its creation in which it must be finished
WORK = "cloudrec/work-s"  # the seconds that it trains, as its user expects
QUEUED = "cloudrec/queued"  # the annotation of a run that the keeper has suspended until its turn
MAX_PRICE = "cloudrec/max-price"  # the most that a node may cost, in USD an hour

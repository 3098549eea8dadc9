"""Labels and annotations by which a run and the keeper of a managed cluster know of each other."""

from __future__ import annotations

NODES = "cloudrec/nodes"  # the nodes that the run needs
DEADLINE = "cloudrec/deadline-s"  # the seconds from its creation in which it must be finished
WORK = "cloudrec/work-s"  # the seconds that it trains, as its user expects
NODE_RUN = "cloudrec.io/run"  # the label of a node that is for the pods of one run
LEAVING = "cloudrec.io/leaving"  # the annotation of a node that the keeper has cordoned to release its pool
QUEUED = "cloudrec/queued"  # the annotation of a run that the keeper has suspended until its turn
FEWEST = "cloudrec/fewest-nodes"  # with which the run continues; absent for all that it needs
TURNS = "cloudrec/turns"  # whether the run may move to clusters of other regions: "shared"
MAX_PRICE = "cloudrec/max-price"  # the most that a node may cost, in USD an hour
# A well-known annotation of Kubernetes, with backoffLimitPerIndex. Crashes are in another one, which stays.
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"

"""The sharded TorchRec DLRM trainer; it does not depend on the cloudrec package."""

import os

from trainer.base.memory import use_huge_pages

# Here, because torch reads the variable once, when the first tensor is made: torchrec does that on import.
use_huge_pages(os.environ)

"""The sharded TorchRec DLRM trainer: stands alone, knows nothing of cloudrec."""

import os

from trainer.memory import use_huge_pages

# Here, since torch looks once, at its first tensor of all, which torchrec makes when it is imported.
use_huge_pages(os.environ)

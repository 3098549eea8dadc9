"""cloudrec creates GPU clusters on AWS, Google Cloud and Azure, and trains recommender models on them."""

from cloudrec_contract.user_log import log

__all__ = ["__version__", "log"]
__version__ = "0.1.0"

"""cloudrec creates GPU clusters on AWS, Google Cloud and Azure, and trains recommender models on them."""

__version__ = "0.1.0"

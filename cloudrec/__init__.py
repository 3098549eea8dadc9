"""cloudrec: from nothing to a trained recommender model on any of three clouds."""

__version__ = "0.1.0"

"""The contract between cloudrec and the trainer. Both import this package, and neither imports the other."""

"""Reading: the prepared dataset, the order of an epoch, and batches out of both."""

"""Reading data: the formats, the order of an epoch, and batches."""

"""`data prepare`: conversion of raw rows to a dataset, in bounded memory."""

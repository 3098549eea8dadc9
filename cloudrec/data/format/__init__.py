"""The dataset format: dataset.json, its shards, its encoding, and the fields of its rows."""

"""Objects and their kinds: schemas, merges, field ownership, and the table that stores objects."""

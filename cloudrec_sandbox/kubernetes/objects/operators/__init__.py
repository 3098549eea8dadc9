"""The schemas of kinds that operators define."""

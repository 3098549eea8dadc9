"""The live page of `cloudrec ui`: a server for the user's own browser, on this machine only."""

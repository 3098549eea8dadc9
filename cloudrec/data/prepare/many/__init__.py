"""`data prepare` on many machines: tasks count and encode the files, with the bytes of one machine."""

"""Published versions of a model: their format, a reader that needs numpy only, and a source for servers."""

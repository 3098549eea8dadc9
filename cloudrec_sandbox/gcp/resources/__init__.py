"""Resources and long-running operations: storage, filters, pages, checks, locations."""

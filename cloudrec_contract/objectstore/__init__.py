"""Object stores: a folder, a bucket, or a folder of a login node, seen as named objects that appear whole.

Every folder here is a kind of store. Its `__init__` states KIND: the URI schemes, and what must be installed.
Its module `store` has `open_store(uri, options)`, and is imported when a URI of the kind is opened.
"""

"""Blob Storage, the data of storage accounts: https://HOST/blob/ACCOUNT/CONTAINER/NAME.

At Azure each account has its own host, ACCOUNT.blob.core.windows.net. The rules are those of the REST
reference (learn.microsoft.com/rest/api/storageservices), under the operations' names and in "Specifying
conditional headers" and "Blob service error codes". An account with a hierarchical namespace has real
directories, which stay when their last file is deleted.
"""

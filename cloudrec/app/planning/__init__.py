"""Use cases that compute offline, before anything is paid for."""

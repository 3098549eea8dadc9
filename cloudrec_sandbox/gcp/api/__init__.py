"""Calls over gRPC and REST: methods, tokens, projects, errors."""

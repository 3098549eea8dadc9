"""Workflows v1 and Workflow Executions v1: deployed programs, and their executions as a service account."""

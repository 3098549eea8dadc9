"""Connections to running containers through the API server: exec and portforward."""

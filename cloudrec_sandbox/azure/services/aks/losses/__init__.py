"""Machines that end although their pool wants them."""

"""Machines that end although something wants them."""

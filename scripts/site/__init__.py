"""The parts of the documentation that are generated: pages of reference and pictures."""

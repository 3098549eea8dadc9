"""The resource engine: compares the resources that should exist with those that do, and changes them."""

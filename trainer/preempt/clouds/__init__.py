"""The clouds whose metadata services announce preemptions: one module each, found by listing this folder.

The name of a module is a value of `--preemption_notices`. Each module has one public value, SERVICE.
"""

"""Models of several tasks: one score a label, from parts that the tasks share."""

"""Azure Resource Manager: paths, kinds of resources, operations, errors, filters, pages."""

"""The common part of all databases: statements, ranges, values, errors."""

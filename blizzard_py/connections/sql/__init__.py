"""What all databases have in common: statements, ranges, values, faults."""

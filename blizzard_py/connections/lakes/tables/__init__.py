"""Tables with a log of their own: Delta and Iceberg."""

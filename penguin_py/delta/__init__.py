"""The Delta log. `table` and `entry` are the only modules that import deltalake."""

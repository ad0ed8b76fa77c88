"""A table's Delta log, as far as both daemons read it without the library that writes it."""

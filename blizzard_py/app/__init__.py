"""The wiring of the parts: for the daemon, for looking, and for work by hand."""

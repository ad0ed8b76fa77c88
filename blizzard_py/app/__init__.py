"""Where the parts are put together: for the daemon, for looking, and for work by hand."""

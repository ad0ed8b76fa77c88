"""What makes a daemon of workers: their loop, the signals that end it, and its quick start."""

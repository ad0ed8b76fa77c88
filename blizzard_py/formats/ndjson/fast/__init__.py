"""The fast path: certain lines become columns in a sandbox; `decode` reads all others."""

"""Lines of JSON: framing, parsing, and the compiled path for certain lines."""

"""What a commit will hold: values, types and statistics that every reader understands. Pure."""

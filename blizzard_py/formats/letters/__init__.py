"""Dead letters of formats with types: rows in JSON that loses nothing, and their one reader."""

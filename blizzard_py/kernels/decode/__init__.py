"""From lines to Arrow columns, with checks around a parser that is too tolerant."""

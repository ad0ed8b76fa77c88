"""From lines to Arrow columns, with guards around a parser that is too forgiving."""

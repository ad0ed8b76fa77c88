"""CSV: framing by the rules of RFC 4180 and of pyarrow's reader, and columns of text."""

"""Work units: ranges of time and listed values, each with a high watermark of its own. Pure."""

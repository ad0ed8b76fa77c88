"""The dead-letter queue: `writer` makes letters durable, `reader` finds them again."""

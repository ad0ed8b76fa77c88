"""The format Avro: object container files, with fastavro as the decoder of records.

`container` frames a file's blocks, `schema` checks its schema, `walk` finds records without
decoding them, `values` makes Arrow columns, and `records` is the format.
"""

"""Parquet and ORC: formats that store columns, decoded in a process with little memory.

Sources of files read them as a `Format`. Tables read their rows and their footers' ranges.
"""

"""Markers of complete partitions against a million schedules.

The full simulator plays three histories a second, most of which have no marker. This one runs only
the code that decides about markers: the batch protocol, completions and their mirror, and Penguin's
certificates. Sources, jobs, the table's log and Penguin's search for files are small stand-ins.
"""

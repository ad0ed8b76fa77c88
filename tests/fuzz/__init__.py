"""Coverage-guided fuzzing of the code that reads foreign bytes (``make fuzz``).

Each target in `targets` says what its code may do with any bytes at all. `child` lets libFuzzer
look for bytes with which it does something else; what was found is mended and stays in
``corpus``, which the suite goes through every time.
"""

"""Coverage-guided fuzzing of the code that reads foreign bytes (``make fuzz``).

Each target in `targets` states a contract for any bytes. `child` lets libFuzzer search for bytes
that break it. Each finding is mended and kept in ``corpus``, which the test suite runs.
"""

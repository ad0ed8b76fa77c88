"""The test of the test."""
def table(only: str, first: int, seeds: int, jobs: int) -> int:
    return 0

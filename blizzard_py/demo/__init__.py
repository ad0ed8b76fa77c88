"""What `blizzard demo` shows, and what the repository's other demos are played with.

Nothing of the product is imported here: a demo sees what a user sees, the commands, their exit
codes and the JSON of ``status``.
"""

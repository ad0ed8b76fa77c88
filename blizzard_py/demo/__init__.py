"""The play of `blizzard demo`, and the stage of the repository's other demos.

Nothing of the product is imported here: a demo sees what a user sees, the commands, their exit
codes and the JSON of ``status``.
"""

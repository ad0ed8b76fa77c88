"""Views of a daemon while it runs: metrics, health, status page, container probe.

Logs are not here but below everything (`blizzard_core.log`): stores log, too.
"""

"""Notifications of stores: messages that say where a new object is.

A notification is a hint. It never decides whether a file is new, late or done; scans do.
"""

"""Watermarks of paths: finished files, the places of new ones, and listings of these places only.

Decisions are pure; only `scan` uses a store.
"""

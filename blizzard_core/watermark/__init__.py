"""Watermarks of paths: what is done, what may be new, and listing only there.

Decisions are pure; `scan` alone asks a store.
"""

"""Texts that attack pages, logs and terminals."""

from __future__ import annotations

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m",
    "a\r\nb\x00\x7f",
    "\u202egnp.exe\u2066\u200f",
    "\udc80\udcff",
    "\u2028\ufeff",
    "\U000e0041",
)

"""Stores: one narrow protocol, and S3, GCS, Azure and local disks behind it."""

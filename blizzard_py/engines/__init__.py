"""Engines that run ingest jobs. An engine is made with its first job (`lazy`)."""

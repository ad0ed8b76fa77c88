"""APIs over HTTP: windows become requests, answers become lines of NDJSON."""

"""APIs over HTTP: windows become requests, answers become NDJSON lines."""

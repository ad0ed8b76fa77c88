"""Runs as other systems see them: traces of OpenTelemetry and events of OpenLineage."""

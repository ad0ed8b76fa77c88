"""JSON documents: arrays of records, or objects behind each other."""

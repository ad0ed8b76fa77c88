"""The batch protocol: discover → plan → ingest → prepare → publish → advance.

The steps, their saves and why their order makes it exactly-once are in `source_pipeline`.
"""

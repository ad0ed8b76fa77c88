"""Sources that are asked for rows above a watermark: tables and APIs behind a connection."""

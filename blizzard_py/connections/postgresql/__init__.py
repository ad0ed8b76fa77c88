"""PostgreSQL, read with ADBC: binary COPY straight into Arrow."""

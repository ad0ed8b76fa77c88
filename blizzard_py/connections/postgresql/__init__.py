"""PostgreSQL by ADBC: binary COPY straight into Arrow."""

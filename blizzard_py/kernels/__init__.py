"""The work of a task on its files: pyarrow kernels that know no scheduler.

`task.run_task` turns a list of NDJSON files into Parquet files in staging and a
report. Everything below it streams: memory is bounded by the sizes named in
`read.framing` and `write.outputs`, whatever the size of a file.
"""

"""The work of a task on its files: pyarrow kernels without any scheduler.

`task.run_task` turns a list of NDJSON files into Parquet files in staging and a report. Everything
below it streams: memory is limited by the sizes in `lines.framing` and `write.outputs`, whatever
the size of a file.
"""

"""Tables and APIs: asked by the driver what there is to read, read by Spark tasks."""

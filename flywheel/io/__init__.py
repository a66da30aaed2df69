"""Reading and writing files: atomic writes, hash-chained logs, files that users wrote."""

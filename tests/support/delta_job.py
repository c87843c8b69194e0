"""The program of `support.delta_reader`: each row of a Delta table as a line of JSON."""

from __future__ import annotations

import sys

# This folder's names are no modules of Python's.
sys.path.pop(0)

import json

from pyspark.sql import SparkSession

session = SparkSession.builder.getOrCreate()
for row in session.read.format("delta").load(sys.argv[1]).collect():
    print(json.dumps(row.asDict(recursive=True), default=str))

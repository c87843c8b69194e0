"""Which scripts does spark-submit run? Python puts this folder on the driver's path."""

"""What spark-submit is given: in a folder of its own, which Python puts on the driver's path."""

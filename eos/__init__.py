"""One Kafka transaction for each Spark micro-batch, across the whole cluster."""

__version__ = "0.1.0"

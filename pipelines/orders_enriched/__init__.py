"""Orders as JSON, enriched by SQL and Python, large ones as Avro to a topic of their own."""

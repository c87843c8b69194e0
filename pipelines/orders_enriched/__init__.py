"""Orders as JSON, enriched by SQL and Python, large ones to a topic of their own."""

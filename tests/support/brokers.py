"""Settings of real brokers that more than one test starts."""

# For transactions that timed out: many times a second, not every ten seconds.
LOOKS_OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}

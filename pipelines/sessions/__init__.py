"""Clicks, gathered to a session of each user: state that lives from one micro-batch to the next."""

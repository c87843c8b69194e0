"""One source, several topics, one of them by a column: all of it commits together."""

"""One module per version of the schema, each complete in itself: later changes of the tables do not reach it."""

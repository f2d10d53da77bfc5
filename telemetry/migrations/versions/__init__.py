"""One module per version of the schema, with the steps from the version before."""

"""Large rounds with user-written rules: tasks and GPUs that all rules treat equally are aggregated."""

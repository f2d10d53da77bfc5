"""Large rounds with a user's rules: tasks and GPUs that the rules treat equally are counted together."""

"""Programs that stay alive between solves: each optimum starts from the last."""

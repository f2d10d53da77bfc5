"""Programs and networks that stay alive between solves: each optimum starts from the last."""

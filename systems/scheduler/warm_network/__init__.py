"""A minimum-cost flow that stays alive while its network changes: each optimum starts from the last."""

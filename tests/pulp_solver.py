"""A solver that PuLP starts itself: CBC where PuLP bundles it (before version 4), else HiGHS by PuLP's interface."""

from typing import Any

import pulp


def solver_of_pulp() -> Any:
    """Make the solver, without output."""
    return pulp.PULP_CBC_CMD(msg=False) if hasattr(pulp, "PULP_CBC_CMD") else pulp.HiGHS(msg=False)

"""The live network by incremental cost scaling: each optimum from the last flow, with an epsilon that shrinks.

The algorithm that flow schedulers publish (Chen et al. 2017; Firmament's Flowlessly): events change the graph, the flow
that still fits stays, and cost scaling by push and relabel goes on from it; epsilon begins at the most that a reduced
cost is wrong by. Each step passes over all arcs. For comparison with `NetworkSession`, whose steps do not.
"""

from __future__ import annotations

import numpy as np

from flowlex.formulations.engines.cost_scaling import scale_costs
from flowlex.formulations.sessions import residual as kernels
from flowlex.formulations.sessions.network import NetworkSession

__all__ = ["ScalingSession"]

#: Work of cost scaling, per node and arc, beyond which the session starts anew.
_MOST = 20_000


class ScalingSession(NetworkSession):
    """The interface of `NetworkSession`; only how an optimum is found differs.

    >>> session = ScalingSession()
    >>> node = session.add_node()
    >>> dear, cheap = session.add_arc(node, 0, 1, 9), session.add_arc(node, 0, 1, 4)
    >>> session.add_supply(node, 1)
    >>> session.solve()
    >>> session.objective
    4
    """

    def solve(self, *, cold: bool = False) -> None:
        """Bring the flow to minimum cost, from the last flow or (``cold``) from nothing.

        Raises
        ------
        NoFlowError
            No flow satisfies the network.
        """
        fresh = np.fromiter(self._fresh, np.int64, len(self._fresh))
        self.apply(cold=True)
        kernels.price_fresh(self._t, fresh)
        start = None if cold else (self.flow.copy(), self.potentials)
        network = self.network(applied=True)
        if not self._adopt(scale_costs(network, _MOST * (self.node_count + self.arc_count), start)):
            super().solve(cold=True)  # no flow, no optimum, or numbers too large for one scaling

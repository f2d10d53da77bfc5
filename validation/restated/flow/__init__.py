"""Flow scheduling restated from the data fields of an instance: goals, costs, shares, rules, and the program.

Nothing here comes from the properties and functions of `flowlex.instances` that models use. A wrong rule there is
refused by the certificates, which read theirs here.
"""

from flowlex.validation.restated.flow.solution_verifier import VERIFIER

__all__ = ["VERIFIER"]

"""Does a linear program have integer vertices by itself? A proof for yes, a submatrix for no."""

import numpy as np

import flowlex as fx

intervals = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]])  # ones without gaps: shifts, time windows
print(fx.check(intervals))

odd_cycle = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])  # determinant 2
report = fx.check(odd_cycle)
print(report)

# And a model with a rule of your own?
model = fx.model_for(fx.generate("gpu-figure1"), policy="FS")
x = model.variables["x"]
print(model.with_constraint("spread", x.sum(by=["job", "node"]) <= 1).structure())

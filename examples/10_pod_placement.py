"""Which pods are admitted, by strict priority, and where do they run?"""

from flowlex import generate, model_for

solution = model_for(generate("kubeflow-testbed", seed=1, pods=8)).solve()
print(solution.to_frame().head(8))
print(solution.certificate)

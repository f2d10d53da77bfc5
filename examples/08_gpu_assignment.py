"""Which GPU runs which task? Fair shares first, then the least transfer, on the testbed of the paper."""

from flowlex import compare, generate, model_for

instance = generate("gpu-testbed", seed=1)
solution = model_for(instance, policy="FSP").solve()
print(solution.to_frame().head(8))
print(f"{solution.objective:.2f} s of transfer; {solution.certificate.summary}")
print(compare(instance))  # beside the baselines of the paper

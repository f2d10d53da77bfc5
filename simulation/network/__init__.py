"""Fluid flows on ports: coflows and jobs as DAGs."""

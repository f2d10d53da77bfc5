"""Rules that tie tasks together (gangs, spreads, affinities): an integer program of the choices and its proof."""

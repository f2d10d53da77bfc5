"""Tasks that ask for amounts of several resources, on machines with capacities: an integer program and its bound."""

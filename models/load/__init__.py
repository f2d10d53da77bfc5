"""Load partition: assignment of items to the nodes that process them."""

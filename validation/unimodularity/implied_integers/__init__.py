"""Which integer declarations follow from the others, with a proof."""

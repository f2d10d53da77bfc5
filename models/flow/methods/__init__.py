"""Methods of flow scheduling that are quicker than solving its statement; each hands over an answer and a proof."""

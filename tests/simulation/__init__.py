"""Jobs on a virtual clock: what production does, in worlds that a seed decides."""

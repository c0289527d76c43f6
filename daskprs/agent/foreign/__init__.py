"""What runs in another interpreter with the entry script: Python 3.8, standard library only."""

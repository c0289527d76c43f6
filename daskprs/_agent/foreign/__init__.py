"""The code that runs in the script's own interpreter: Python 3.8, standard library only."""

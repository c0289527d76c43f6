"""The code in the worker: slots, their supervisors, and the zygote that forks agents."""

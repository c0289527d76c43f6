"""The loop that works through a job: the same on a cluster and in the caller's process."""

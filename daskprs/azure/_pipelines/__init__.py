"""Pipeline files, read, checked and wired before anything runs."""

"""Access to the operating system: locks, atomic files, signals, disk space, processes."""

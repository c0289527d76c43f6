"""What the operating system gives: locks, atomic files, signals, disk space, processes."""

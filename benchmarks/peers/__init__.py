"""One file for each way of doing the same work; each is a program of its own."""

"""One job, from the call to the result. Internal: the public names are in `daskprs`."""

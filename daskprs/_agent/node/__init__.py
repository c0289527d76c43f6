"""The parts that exist once on a node or worker: site, folder, devices and environment."""

"""What runs once on a node or worker: its site, its folder, its devices, its environment."""

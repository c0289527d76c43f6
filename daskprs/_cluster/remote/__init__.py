"""Nodes that do not see the job folder: what is sent to them and fetched from them."""

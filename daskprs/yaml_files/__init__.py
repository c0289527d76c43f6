"""YAML files that people write: their values with places, their forms, and all their mistakes."""

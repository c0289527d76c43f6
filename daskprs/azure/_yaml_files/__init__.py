"""YAML files of users: values with their places, forms, and mistakes."""

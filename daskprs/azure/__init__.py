"""What people bring from Azure Machine Learning, run on Dask: its YAML files and its classes.

Nothing here talks to Azure, or needs a package of it.
"""

"""Modules of Azure's packages that published scripts import, where these are not installed.

`here` is for the Python of daskprs. The others run under any Python, where daskprs is not installed
either: their source travels with the job.
"""

"""MLTable: a folder with a file that says what its table is, read without the package of that name.

`place` finds it, `form` is its YAML, `steps` are its transformations, and `source` puts them
around a source of files.
"""

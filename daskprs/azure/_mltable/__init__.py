"""MLTable: a folder with a file that says what its table is, read without the package of that name.

`place` finds it, `form` is its YAML, `content` what this YAML says. `building` makes `steps` of its
transformations, `opening` opens its files, and `source` applies the steps to the rows of these.
"""

"""``python -m daskprs``: the command line, where its program is not on the path."""

from daskprs._cli import main

if __name__ == "__main__":
    main(prog_name="daskprs")

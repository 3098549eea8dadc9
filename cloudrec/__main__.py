"""`python -m cloudrec`: the command line, if the script `cloudrec` is not on PATH."""

from cloudrec.cli import main

if __name__ == "__main__":
    main()

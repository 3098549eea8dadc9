"""`python -m cloudrec`: the command line, for where its script is not on PATH."""

from cloudrec.cli import main

if __name__ == "__main__":
    main()

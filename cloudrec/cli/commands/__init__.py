"""The commands, one module for each group. `cloudrec.cli.main` imports a module when its command is used."""

"""The services of the stand-in, a module or package for each; all modules are loaded."""

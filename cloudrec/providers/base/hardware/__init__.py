"""The machine types of the clouds, as rows with date and source, and what is checked of them."""

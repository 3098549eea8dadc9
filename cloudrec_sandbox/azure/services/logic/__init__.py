"""Logic Apps' workflows of the Consumption plan: definitions, expressions, runs, and calls of Azure."""

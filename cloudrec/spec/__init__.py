"""What the user asks for: one YAML file, the environment and flags, validated once into frozen objects."""

"""What all packages share: the schema, errors, progress, and files that are written whole or not at all."""

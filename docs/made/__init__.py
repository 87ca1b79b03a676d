"""What the build of the documentation makes from the code: pictures, tables of keys, help texts, pages of the root."""

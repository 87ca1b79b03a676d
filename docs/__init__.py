"""The documentation: pages (Markdown) and, in `made`, what the build makes from the code."""

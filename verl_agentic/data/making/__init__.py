"""Makes data: candidates of a maker are verified, and only those without a fault are written. Mixes files of rows."""

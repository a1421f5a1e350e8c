"""The backends `namespaces` and `landlock`: boxes that a zygote forks, their pool, their limits."""

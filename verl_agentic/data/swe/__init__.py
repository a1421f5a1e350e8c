"""Tasks that fix repositories: made from releases and mutations, checked, imported and exported; a sample of them."""

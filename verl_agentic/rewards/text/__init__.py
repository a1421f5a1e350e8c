"""Reading texts for reward components: tags, reasoning, similarity, normal forms."""

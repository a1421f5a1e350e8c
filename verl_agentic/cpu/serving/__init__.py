"""The model server with OpenAI's API."""

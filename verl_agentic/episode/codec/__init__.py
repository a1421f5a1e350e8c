"""Messages to token ids and back: chat templates, tool calls, control tokens."""

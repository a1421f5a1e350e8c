"""Announcement of tools that change in mid-episode."""

from __future__ import annotations

from collections.abc import Sequence

from verl_agentic.episode.codec.codec import Codec, Schema

NEW_TOOLS = "From now on you can also call these tools:"
LOST_TOOLS = "You can no longer call these tools:"


def announcement(codec: Codec, before: Sequence[Schema], after: Sequence[Schema]) -> str:
    """Returns the text that explains the difference between two lists of tools; empty if there is none. A tool whose
    schema has changed is new.

    Raises:
        ConfigError, DataError: the protocol cannot call a new tool, or its parameters are not a JSON schema.
    """
    schemas_by_name = {tool_name(schema): schema for schema in before}
    added = [schema for schema in after if schemas_by_name.get(tool_name(schema)) != schema]
    lost = [name for name in schemas_by_name if name not in {tool_name(schema) for schema in after}]
    parts = [f"{NEW_TOOLS}\n{codec.announce_tools(after, added=added)}"] if added else []
    if lost:
        parts.append(f"{LOST_TOOLS} {', '.join(lost)}")
    return "\n\n".join(parts)


def tool_name(schema: Schema) -> str:
    """Returns the name of a tool."""
    return schema["function"]["name"]

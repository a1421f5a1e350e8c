"""An MCP server with the stock of a shop, for the examples. It keeps no state."""

from __future__ import annotations

import itertools
import logging
import random

COLOURS = ("red", "blue", "green", "black", "white", "yellow", "brown", "grey")
THINGS = ("lamp", "chair", "table", "kettle", "mirror", "blanket", "clock", "shelf", "carpet", "vase")
PLACES = ("Lisbon", "Oslo", "Cairo", "Quito", "Hanoi", "Perth")
IDS = {f"{colour} {thing}": f"item-{i:02}" for i, (colour, thing) in enumerate(itertools.product(COLOURS, THINGS))}


def stock_of(item: str) -> dict[str, int]:
    """Returns how many of an item, given by its id, are in each place."""
    rng = random.Random(item)
    return {place: rng.randrange(100, 1000) for place in PLACES}


def main() -> None:
    """Serves two tools over stdio."""
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    logging.disable(logging.ERROR)
    server = MCPServer("shop")

    @server.tool()
    def find_item(name: str) -> str:
        """Returns the id of an item, given by colour and kind, such as "red lamp"."""
        if name not in IDS:
            raise ToolError(f"no such item, got {name!r}")
        return IDS[name]

    @server.tool()
    def stock(item: str) -> dict[str, int]:
        """Returns how many of an item, given by its id, are in each warehouse."""
        if item not in IDS.values():
            raise ToolError(f"no such id, got {item!r}")
        return stock_of(item)

    server.run("stdio")


if __name__ == "__main__":
    main()

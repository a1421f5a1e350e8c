"""Commands that write and check data: `prepare` and `data`."""

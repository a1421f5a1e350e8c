"""Makers of data by name: `makers/NAME.py` holds the class `Maker`, see `data.making.maker`."""

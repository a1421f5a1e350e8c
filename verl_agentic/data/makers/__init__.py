"""Makers of data by name: `makers/NAME.py` holds the class `MAKER`, see `data.making.maker`."""

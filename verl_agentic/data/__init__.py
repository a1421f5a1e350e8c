"""Data sets from episodes, exports, duplicates, makers of data. An extension."""

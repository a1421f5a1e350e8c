"""Data files of rows: JSON lines and parquet, as verl reads them."""

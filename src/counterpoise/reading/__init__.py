"""Tables that a user names: read with care for memory; every complaint names the file, the column and the row."""

from counterpoise.reading.data_file import DataFile
from counterpoise.reading.opening import read_table

__all__ = ["DataFile", "read_table"]

"""Tables that a user names: read with care for memory; every complaint names the file, the column and the row."""

from counterpoise.reading.data_file import DataFile
from counterpoise.reading.on_disk import TableOnDisk
from counterpoise.reading.opening import open_table, read_table

__all__ = ["DataFile", "TableOnDisk", "open_table", "read_table"]

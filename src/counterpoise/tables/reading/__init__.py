"""Tables that a user names: read with care for memory; every complaint names the file, the column and the row."""

from counterpoise.tables.reading.data_file import DataFile
from counterpoise.tables.reading.on_disk import TableOnDisk
from counterpoise.tables.reading.opening import open_table, read_table

__all__ = ["DataFile", "TableOnDisk", "open_table", "read_table"]

"""Where rows are: in memory, in blocks on disk or on workers, on a device. One interface, whatever their home."""

from counterpoise.rows._base import Array, Codes, Mask, Part, Rows, Slopes, Sums
from counterpoise.rows.block_rows import BlockRows, BlockSlopes
from counterpoise.rows.blocks import Answer, Block, Blocks, BlocksInMemory, Question, combined
from counterpoise.rows.layouts import Coefficients
from counterpoise.rows.memory import MemoryRows

__all__ = [
    "Answer",
    "Array",
    "Block",
    "BlockRows",
    "BlockSlopes",
    "Blocks",
    "BlocksInMemory",
    "Codes",
    "Coefficients",
    "Mask",
    "MemoryRows",
    "Part",
    "Question",
    "Rows",
    "Slopes",
    "Sums",
    "combined",
]

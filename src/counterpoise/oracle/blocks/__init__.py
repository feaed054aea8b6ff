"""Rows in blocks, wherever they are: in memory, on disk or on workers. Each file is one kind of question to them."""

from counterpoise.oracle.blocks._base import Answer, Block, Blocks, BlocksInMemory, Codes, Question, Tiles, combined

__all__ = ["Answer", "Block", "Blocks", "BlocksInMemory", "Codes", "Question", "Tiles", "combined"]

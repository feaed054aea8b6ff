"""Names that have broken pages before."""

NAMES = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "a & b &amp; &#60;",
    "]]><!-- --></title></svg>",
    "x" * 10_000,
    "👩‍👩‍👧‍👧 🏳️‍🌈 " * 40,
    "שלום עולם (1)",
    "مرحبا بالعالم",
    "\u202egnp.exe\u2069\u2069",
    "two\nlines\r\nand\ttabs\u2028",
    "nul\0 bell\a escape\x1b[31m \x7f\x85\ufffe\uffff",
    "half \ud800 other half \udc00",
    "e\u0301" * 500,
    "",
    "   ",
    ("a crossed", "<b>label</b>", 3),
    3.5,
    None,
]

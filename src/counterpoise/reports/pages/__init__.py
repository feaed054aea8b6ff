"""Building blocks of self-contained HTML reports: text made safe, SVG charts, and the page around them."""

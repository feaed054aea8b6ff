"""How a page looks: on a phone, on a screen, on paper."""

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0; } h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; }
h1, h2, .verdict { max-width: 48rem; text-wrap: balance; }
main > p, section > p, .notice { max-width: 48rem; }
.subtitle { color: #555; margin: 0 0 1rem; }
.verdict { font-size: 1.35rem; line-height: 1.35; font-weight: 600; margin: 1.25rem 0; }
.skip { position: absolute; left: -100rem; padding: .5rem 1rem; background: #fff; }
.skip:focus { left: .5rem; top: .5rem; }
a { color: #00539b; } :focus-visible { outline: 3px solid #00539b; outline-offset: 2px; }
figure { margin: 1.5rem 0; } svg { display: block; width: 100%; height: auto; max-width: 36rem; }
figcaption { font-size: .9rem; color: #444; margin-top: .4rem; max-width: 36rem; }
.wide { overflow-x: auto; margin: 1rem 0 .5rem; overflow-wrap: normal; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #d5d5d5; text-align: right; vertical-align: top; }
th:first-child, td:first-child { padding-left: 0; }
thead th { border-bottom: 2px solid #767676; vertical-align: bottom; } tbody th { font-weight: 400; }
.left { text-align: left; }
.left bdi { display: inline-block; max-width: min(18rem, 45vw); overflow-wrap: break-word; }
td:not(.left), tbody th:not(.left) { white-space: nowrap; }
.facts { margin: 1rem 0; } .facts th, .facts td { text-align: left; white-space: normal; }
.facts th { color: #555; width: 9rem; }
.below { font-size: .9rem; color: #444; margin: .25rem 0 1rem; }
.notice { border-left: 4px solid #00539b; background: #eef4fa; padding: .6rem 1rem; margin: 1rem 0; }
.warning { border-color: #a00000; background: #fdf0ed; }
details { margin: 1rem 0; border: 1px solid #d5d5d5; border-radius: 4px; padding: .5rem .9rem; }
summary { cursor: pointer; font-weight: 600; }
@media print {
  body { max-width: none; padding: 0; font-size: 11pt; } .skip { display: none; }
  .wide { overflow: visible; } table { font-size: 8.5pt; } th, td { padding: .2rem .4rem; }
  .left bdi { display: inline; max-width: none; overflow-wrap: anywhere; }
  figure, .notice, .verdict, tr { break-inside: avoid; } h2, caption, summary { break-after: avoid; }
  thead { display: table-header-group; } svg { max-width: 14cm; max-height: 23cm; }
  details { border: 0; padding: 0; } details::details-content { content-visibility: visible; block-size: auto; }
  .notice { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""

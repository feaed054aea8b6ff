// The page's only script. It reads DATA, which the page defines before it, and shows one level of it at a time.
// Nothing is computed here but where things go: every number is the library's. Names from outside reach the page as
// text only, never as markup.
(() => {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 480, HEIGHT = 330, SIZE = 14, LINE = 18;
  const GREY = "#8f8f8f", GRID = "#e4e4e4", AXIS = "#767676", MUTED = "#555555", ROBUST = "#0b6e4f", ERM = "#c44601";
  const REGRET = "#aa4499", PALE = "#a3cbbb", KNEE = "#1a1a1a";
  // Shares of many contexts are small: the square root leaves room to see them.
  const ROOTED = DATA.names.length + DATA.others > 8;
  // What is shown: a level, or the level as fitted with bounds of one share, whose places follow those of all levels.
  const state = { index: DATA.chosen, method: DATA.method, criterion: DATA.criterion, bounds: null };
  const LEVELS = DATA.radii.length;
  // On held-out rows, where contexts are not too small to judge any level.
  const judgedLevels = () => {
    const found = DATA.held_out?.[state.criterion];
    return found && found.worst[0][0] !== null ? found : null;
  };
  const level = () => Math.min(state.bounds ? DATA.chosen : state.index, LEVELS - 1);

  // --- parts -----------------------------------------------------------------------------------------------

  const find = (id) => document.getElementById(id);

  function part(space, name, attributes = {}, ...children) {
    const made = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  const html = (name, attributes, ...children) => part(null, name, attributes, ...children);
  const svg = (name, attributes, ...children) => part(SVG, name, attributes, ...children);

  // A name is isolated, so that one written from right to left leaves its neighbours where they are.
  const named = (name) => html("bdi", {}, name);

  function set(element, attributes) {
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  }

  // Text for people, and beside it the number as it is.
  function tell(element, text, value) {
    element.textContent = text;
    element.setAttribute("data-value", value === null ? "" : value);
  }

  // --- numbers in words ------------------------------------------------------------------------------------

  const raised = (n) => String(n).replace(/./g, (c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻");

  function number(value, digits = 3) {
    if (value === null) return "∞";
    if (value === 0) return "0";
    const size = Math.abs(value);
    let exponent = Math.floor(Math.log10(size)), unit = 1, suffix = "";
    if (size < 1e-3 || size >= 1e9) [unit, suffix, exponent] = [10 ** exponent, "×10" + raised(exponent), 0];
    let text = (value / unit).toFixed(Math.min(Math.max(0, digits - 1 - exponent), 9));
    if (text.includes(".")) text = text.replace(/\.?0+$/, "");
    if (size >= 1e4 && !suffix) text = text.replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
    return text.replace("-", "−") + suffix;
  }

  function percent(share) {
    const hundredths = 100 * share;
    if (hundredths > 0 && hundredths < 0.01) return "<0.01%";
    return (hundredths >= 1 ? hundredths.toFixed(1) : hundredths.toFixed(2)).replace(/\.?0+$/, "") + "%";
  }

  // --- charts ----------------------------------------------------------------------------------------------

  const line = (points) => "M" + points.map(([x, y]) => x.toFixed(1) + " " + y.toFixed(1)).join("L");

  // Draw axes, and return where values go and a layer that is cut off at the edges of the plot.
  function frame(picture, axes) {
    picture.querySelectorAll("g").forEach((old) => old.remove());
    const left = Math.max(axes.y.width + 10, 20), right = WIDTH - 14, top = 30, bottom = HEIGHT - 2 * LINE - 8;
    const [[x0, x1], [y0, y1]] = [axes.x.ends, axes.y.ends];
    const x = (value) => left + ((value - x0) / (x1 - x0)) * (right - left);
    const y = (value) => bottom - ((value - y0) / (y1 - y0)) * (bottom - top);
    const behind = svg("g", {});
    axes.y.ticks.forEach((value, k) => {
      behind.append(svg("path", { d: `M${left} ${y(value)}H${right}`, stroke: GRID }));
      behind.append(svg("text", { x: left - 6, y: y(value) + 5, "text-anchor": "end" }, axes.y.labels[k]));
    });
    axes.x.ticks.forEach((value, k) => {
      behind.append(svg("path", { d: `M${x(value)} ${bottom}v4`, stroke: AXIS }));
      // A label at the end stays inside the picture.
      const at = Math.min(x(value), WIDTH - axes.x.width / 2);
      behind.append(svg("text", { x: at, y: bottom + LINE, "text-anchor": "middle" }, axes.x.labels[k]));
    });
    behind.append(
      svg("path", { d: `M${left} ${bottom}H${right}`, stroke: AXIS }),
      svg("text", { x: 2, y: SIZE, fill: MUTED }, axes.y.name),
      svg("text", { x: right, y: bottom + 2 * LINE, fill: MUTED, "text-anchor": "end" }, axes.x.name),
    );
    const clip = picture.id + "-clip";
    const layer = svg("g", { "clip-path": `url(#${clip})` });
    const box = svg("rect", { x: left, y: top, width: right - left, height: bottom - top });
    picture.append(behind, svg("g", {}, svg("clipPath", { id: clip }, box)), layer);
    return { x, y, layer, box: [[x0, y0], [x1, y0], [x1, y1], [x0, y1]] };
  }

  // What the pictures hold, for those who cannot see them.
  const describe = (picture, text) => { picture.querySelector("desc").textContent = text; };

  function key(mark, ...words) {
    const sample = svg("svg", { class: "key", viewBox: "-9 -9 18 18", "aria-hidden": "true" }, mark);
    return html("li", {}, sample, html("span", {}, ...words));
  }

  const SHAPES = ["M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z", "M-3.5-3.5L3.5 3.5M-3.5 3.5L3.5-3.5"];
  const shape = (k, colour, more = {}) => svg("path", {
    d: SHAPES[k], fill: k ? "none" : colour, stroke: k ? colour : "#fff", "stroke-width": k ? 1.8 : 0.6, ...more,
  });

  // --- nominal against worst case --------------------------------------------------------------------------

  const MARKS = {
    erm: () => svg("path", { d: "M0-6L6 5H-6z", fill: ERM }),
    every: () => svg("path", { d: "M-5-5h10v10h-10z", fill: REGRET }),
    fitted: () => svg("path", { d: "M0-8L8 0L0 8L-8 0z", fill: "none", stroke: "#1a1a1a", "stroke-width": 1.6 }),
    now: () => svg("circle", { class: "moves", r: 6, fill: ROBUST, stroke: "#fff", "stroke-width": 1.5 }),
    trained: () => svg("circle", { class: "moves", r: 5, fill: PALE, stroke: "#fff", "stroke-width": 1.5 }),
    knee: () => svg("circle", { r: 7.5, fill: "none", stroke: KNEE, "stroke-width": 2 }),
  };

  function drawTradeOff() {
    const own = DATA.criteria[state.criterion], plot = frame(find("path"), own.axes);
    const places = own.prices.map((price, k) => [plot.x(price), plot.y(own.worst[k])]);
    const judged = judgedLevels(), seen = judged?.price.map(([price], k) => [plot.x(price), plot.y(judged.worst[k][0])]);
    const curve = (points, colour) => plot.layer.append(
      svg("path", { d: line(points), fill: "none", stroke: colour, "stroke-width": 2 }));
    curve(places.slice(0, LEVELS), seen ? PALE : ROBUST);
    if (seen) curve(seen, ROBUST);
    const marks = [[0, MARKS.erm()], [LEVELS - 1, MARKS.every()], [DATA.chosen, MARKS.fitted()]];
    if (seen && judged.knee !== null) marks.push([judged.knee, MARKS.knee()]);
    for (const [k, mark] of marks) {
      mark.setAttribute("transform", `translate(${(seen ?? places)[k].join(" ")})`);
      plot.layer.append(mark);
    }
    const point = seen ? MARKS.trained() : MARKS.now(), other = MARKS.now();
    const interval = svg("path", { id: "held-interval", stroke: ROBUST, "stroke-width": 1.5 });
    point.id = "point";
    other.id = "held-point";
    plot.layer.append(...(seen ? [interval, point, other] : [point]));
    return () => {
      const [cx, cy] = places[state.index], k = state.index;
      set(point, { cx, cy, "data-x": own.prices[k], "data-y": own.worst[k] });
      describe(find("path"), `Price ${number(own.prices[k])}, worst ${number(own.worst[k])}.`);
      const shown = seen && k < LEVELS;
      for (const part of [interval, other]) part.setAttribute("visibility", shown ? "visible" : "hidden");
      if (!shown) return;
      const [price] = judged.price[k], [value, low, high] = judged.worst[k];
      set(other, { cx: seen[k][0], cy: seen[k][1], "data-x": price, "data-y": value });
      set(interval, { d: `M${seen[k][0]} ${plot.y(low)}V${plot.y(high)}` });
      describe(find("path"), `Held out: price ${number(price)}, worst ${number(value)}. On the rows of the fit: price ` +
        `${number(own.prices[k])}, worst ${number(own.worst[k])}.`);
    };
  }

  // --- the decision ----------------------------------------------------------------------------------------

  const LINKS = { identity: (z) => z, log: Math.exp, logit: (z) => 1 / (1 + Math.exp(-z)) };

  function drawPoints(plot, decision, height) {
    decision.points.forEach((point, k) => {
      const colour = DATA.colours[decision.codes[k]] ?? GREY, form = decision.classes.length ? decision.values[k] : 0;
      const place = `translate(${plot.x(point[0]).toFixed(1)} ${plot.y(height(point, k)).toFixed(1)})`;
      plot.layer.append(shape(form, colour, { class: "row", transform: place, opacity: 0.75 }));
    });
  }

  // The part of the box where the model leans to the second class, cut off along the boundary.
  function half(box, slope, intercept) {
    const at = ([x, y]) => intercept + slope[0] * x + slope[1] * y, inside = [], cut = [];
    box.forEach((corner, k) => {
      const next = box[(k + 1) % 4], a = at(corner), b = at(next);
      if (a >= 0) inside.push(corner);
      if (a >= 0 !== b >= 0) {
        const share = a / (a - b);
        cut.push(corner.map((value, j) => value + share * (next[j] - value)));
        inside.push(cut[cut.length - 1]);
      }
    });
    return { inside, cut };
  }

  function drawBoundary(decision) {
    const plot = frame(find("picture"), decision.axes), place = ([x, y]) => [plot.x(x), plot.y(y)];
    const path = (points) => (points.length > 1 ? line(points.map(place)) : "");
    const at = (k) => half(plot.box, decision.slopes[state.criterion][k], decision.intercepts[state.criterion][k]);
    const side = svg("path", { fill: "#dfe9e4" });
    plot.layer.append(side);
    drawPoints(plot, decision, (point) => point[1]);
    plot.layer.append(svg("path", { d: path(at(0).cut), stroke: ERM, "stroke-width": 2, "stroke-dasharray": "6 4" }));
    const edge = svg("path", { id: "edge", stroke: ROBUST, "stroke-width": 3 });
    plot.layer.append(edge);
    return () => {
      const now = at(state.index);
      side.setAttribute("d", path(now.inside));
      edge.setAttribute("d", path(now.cut));
      return equation(decision, " = 0");
    };
  }

  function drawCurve(decision) {
    const plot = frame(find("picture"), decision.axes), link = LINKS[decision.link], [low, high] = decision.axes.x.ends;
    const grid = Array.from({ length: 61 }, (_, k) => low + ((high - low) * k) / 60);
    const at = (k) => line(grid.map((x) => {
      const z = decision.intercepts[state.criterion][k] + decision.slopes[state.criterion][k][0] * x;
      return [plot.x(x), Math.min(Math.max(plot.y(link(z)), -1e4), 1e4)];
    }));
    // Classes lie at 0 and 1; a little spread, the same in every run, keeps rows apart.
    const spread = decision.classes.length ? 0.08 : 0;
    drawPoints(plot, decision, (_, k) => decision.values[k] + spread * (((k * 0.618) % 1) - 0.5));
    const curve = { fill: "none", "stroke-width": 2 };
    plot.layer.append(svg("path", { ...curve, d: at(0), stroke: ERM, "stroke-dasharray": "6 4" }));
    const now = svg("path", { ...curve, id: "edge", stroke: ROBUST, "stroke-width": 3 });
    plot.layer.append(now);
    const left = { identity: decision.target, log: "log of the mean", logit: "log-odds" }[decision.link] + " = ";
    return () => {
      now.setAttribute("d", at(state.index));
      return equation(decision, "", left);
    };
  }

  function drawStock(decision) {
    const plot = frame(find("picture"), decision.axes);
    const orders = decision.orders, top = plot.y(plot.box[2][1]), bottom = plot.y(plot.box[0][1]);
    decision.curves.forEach((costs, k) => {
      const colour = DATA.colours[DATA.drawn[k]];
      const d = line(costs.map((cost, j) => [plot.x(decision.grid[j]), plot.y(cost)]));
      plot.layer.append(svg("path", { d, fill: "none", stroke: colour ?? GREY, "stroke-width": colour ? 2 : 0.8 }));
    });
    const upright = (more) => svg("path", { d: `M0 ${bottom}V${top}`, "stroke-width": 2, ...more });
    const moved = (k) => `translate(${plot.x(orders[state.criterion][k])} 0)`;
    plot.layer.append(upright({ stroke: ERM, "stroke-dasharray": "6 4", transform: moved(0) }));
    const now = upright({ id: "edge", stroke: ROBUST, "stroke-width": 3 });
    plot.layer.append(now);
    return () => {
      now.setAttribute("transform", moved(state.index));
      const order = orders[state.criterion][state.index];
      tell(find("equation"), `Order ${number(order, 4)}; for the average ${number(orders[state.criterion][0], 4)}.`, order);
      return find("equation").textContent;
    };
  }

  function equation(decision, right, left = "") {
    const slopes = decision.slopes[state.criterion][state.index], start = decision.intercepts[state.criterion][state.index];
    const line = find("equation");
    line.replaceChildren(left, number(start));
    slopes.forEach((slope, k) => {
      line.append(slope < 0 ? " − " : " + ", number(Math.abs(slope)) + "\u00a0", named(decision.features[k]));
    });
    line.append(right);
    line.setAttribute("data-value", JSON.stringify([start, ...slopes]));
    return line.textContent;
  }

  const DRAW = { boundary: drawBoundary, curve: drawCurve, stock: drawStock };

  function drawDecision() {
    if (!DATA.decision) return () => {};
    const update = DRAW[DATA.decision.kind](DATA.decision);
    return () => describe(find("picture"), update());
  }

  function fillLegends() {
    const dash = svg("path", { d: "M-9 0H9", stroke: ERM, "stroke-width": 2, "stroke-dasharray": "4 3" });
    find("path-legend").append(
      key(MARKS.now(), DATA.held_out ? "this level, held out" : "this level"),
      ...(DATA.held_out ? [key(MARKS.trained(), "on the rows of the fit"), key(MARKS.knee(), "knee")] : []),
      key(MARKS.fitted(), "as fitted"), key(MARKS.erm(), "erm"), key(MARKS.every(), DATA.largest),
    );
    if (!DATA.decision) return;
    const list = find("picture-legend"), stock = DATA.decision.kind === "stock", grey = DATA.colours.includes(null);
    list.append(key(svg("path", { d: "M-9 0H9", stroke: ROBUST, "stroke-width": 3 }), "this level"), key(dash, "erm"));
    const swatch = (colour) => svg("path", { d: stock ? "M-9-2h18v4h-18z" : "M-6-6h12v12h-12z", fill: colour });
    DATA.drawn.forEach((c) => DATA.colours[c] && list.append(key(swatch(DATA.colours[c]), named(DATA.names[c]))));
    if (grey || DATA.others) list.append(key(swatch(GREY), `other ${DATA.words.context}s`));
    (DATA.decision.classes ?? []).forEach((name, k) => list.append(key(shape(k, "#1a1a1a"), named(name))));
    if (DATA.decision.kind !== "boundary") return;
    const area = svg("path", { d: "M-8-8h16v16h-16z", fill: "#dfe9e4" });
    list.append(key(area, "predicted ", named(DATA.decision.classes[1])));
  }

  // --- contexts --------------------------------------------------------------------------------------------

  const along = (share) => 100 * (ROOTED ? Math.sqrt(share) : share) + "%";

  function contextRow(c) {
    const cell = (name, label) => html("td", { class: name, role: "cell", "data-label": label });
    const own = { share: cell("share", "data"), set: cell("set", "set"), weight: cell("weight", "weight"),
      value: cell("value", ""), track: cell("track", ""), bar: cell("bar", "") };
    own.interval = svg("rect", { class: "moves interval", y: 5, height: 12, rx: 3, fill: "#bcd7cc" });
    own.dot = svg("circle", { class: "moves", cy: 11, r: 5, fill: ROBUST });
    const data = svg("rect", { x: along(DATA.shares[c]), y: 2, width: 2.5, height: 18, fill: "#1a1a1a" });
    const base = svg("rect", { x: 0, y: 10.5, width: "100%", height: 1, fill: "#d5d5d5" });
    own.track.append(svg("svg", { class: "strip", "aria-hidden": "true" }, base, own.interval, data, own.dot));
    own.length = svg("rect", { class: "moves", y: 4, height: 14, fill: DATA.colours[c] ?? GREY });
    own.zero = svg("rect", { y: 0, width: 1, height: 22, fill: "#1a1a1a" });
    own.bar.append(svg("svg", { class: "strip", "aria-hidden": "true" }, own.length, own.zero));
    tell(own.share, percent(DATA.shares[c]), DATA.shares[c]);
    const swatch = svg("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" },
      svg("rect", { width: 10, height: 10, fill: DATA.colours[c] ?? GREY }));
    const name = html("th", { scope: "row", role: "rowheader", title: DATA.names[c] }, swatch, named(DATA.names[c]));
    own.row = html("tr", { role: "row", "data-context": c }, name, own.share, own.track, own.set, own.weight, own.bar,
      own.value);
    find("rows").append(own.row);
    return own;
  }

  function drawScale() {
    const marks = ROOTED ? [0, 0.1, 0.5, 1] : [0, 0.5, 1];
    const texts = marks.map((share) => svg("text", { x: along(share), y: 12, "text-anchor": "middle" }, percent(share)));
    find("scale").append(svg("svg", { class: "strip", fill: MUTED, "font-size": 11 }, ...texts));
  }

  const rows = new Map(DATA.drawn.map((c) => [c, contextRow(c)]));

  function showContexts() {
    const { index, criterion } = state, own = DATA.criteria[criterion], [low, high] = own.bars;
    const across = (value) => (100 * (value - low)) / (high - low);
    find("what").textContent = own.what;
    for (const [c, parts] of rows) {
      const [least, most] = [DATA.low[index][c], DATA.high[index][c]];
      const weight = own.weights[index][c], value = own.values[index][c];
      tell(parts.weight, percent(weight), weight);
      tell(parts.value, number(value), value);
      tell(parts.set, `${percent(least)} – ${percent(most)}`, JSON.stringify([least, most]));
      const start = parseFloat(along(least));
      set(parts.interval, { x: start + "%", width: Math.max(parseFloat(along(most)) - start, 0.3) + "%" });
      set(parts.dot, { cx: along(weight) });
      const [from, to] = [across(Math.min(value, 0)), across(Math.max(value, 0))];
      set(parts.length, { x: from + "%", width: Math.max(to - from, 0.3) + "%" });
      set(parts.zero, { x: across(0) + "%" });
      parts.value.setAttribute("data-label", own.what);
      parts.row.classList.toggle("worst", c === own.worst_in[index]);
    }
  }

  // --- the level -------------------------------------------------------------------------------------------

  function showVerdict() {
    const { index, method, criterion } = state, own = DATA.criteria[criterion], words = DATA.words;
    const unit = words.unit ? " " + words.unit : "", price = own.prices[index];
    const pays = own.paid[index] ? `${number(price)}${unit} more than erm` : "nothing";
    const loses = criterion === "excess"
      ? words.unit ? `) loses ${number(own.worst[index])}${unit} above ${words.best}`
        : `) has a ${words.excess} of ${number(own.worst[index])}`
      : `) has a ${words.risk} of ${number(own.worst[index])}${unit}`;
    const lead = state.bounds ? bounded() : [DATA.leads[method][index]];
    find("verdict").replaceChildren(...lead, ` the worst ${words.context} (`,
      named(DATA.names[own.worst_in[index]]), `${loses}; on average ${words.subject} pays ${pays}.`);
    tell(find("nominal"), number(own.nominal[index], 4), own.nominal[index]);
    tell(find("price"), number(price), price);
    tell(find("worst"), number(own.worst[index]), own.worst[index]);
    tell(find("objective"), number(own.objective[index]), own.objective[index]);
    tell(find("gap"), own.gaps[index] === null ? "–" : number(own.gaps[index]), own.gaps[index]);
  }

  const interval = ([value, low, high], digits) =>
    value === null ? "–" : number(value, digits) + (low === null || high === null ? "" : ` [${number(low)}, ${number(high)}]`);

  function showHeldOut() {
    const own = DATA.criteria[state.criterion];
    document.querySelectorAll(".fitted-score").forEach((span) => { span.textContent = own.what; });
    if (!DATA.held_out) return;
    const found = DATA.held_out[state.criterion], k = state.index, what = state.criterion === "excess" ? "excess risk" : "risk";
    const there = k < LEVELS;
    document.querySelectorAll(".scored").forEach((span) => { span.textContent = what; });
    for (const name of ["mix", "worst", "mean", "price"]) {
      const values = there ? found[name][k] : [null, null, null];
      tell(find("held-" + name), interval(values, name === "mean" ? 4 : 3), JSON.stringify(values));
    }
    const [price, low, high] = there ? found.price[k] : [null, null, null];
    const noise = price !== null && low !== null && low <= 0 && high >= 0 && k > 0 ? " (within the noise)" : "";
    const change = k === 0 ? "" : `, ${price > 0 ? "+" : ""}${number(price)} against erm${noise}`;
    find("held-out").textContent = !there
      ? "Bounds that are moved are judged on the rows of the fit alone."
      : `${DATA.leads[state.method][k]}, on held-out rows the ${what} is ${interval(found.worst[k])} in the worst ${DATA.words.context} and ` +
        `${interval(found.mix[k])} in the worst plausible mix; the mean risk is ${number(found.mean[k][0], 4)}${change}.`;
  }

  function showControls() {
    const { method, criterion } = state, index = level(), slider = find("level"), bits = DATA.radii[index];
    const size = bits === null ? `any distance from ${DATA.source}` : number(bits) + DATA.unit;
    const fitted = index === DATA.chosen ? ", as fitted" : "";
    slider.value = index;
    tell(find("label"), `${DATA.labels[method][index]} · ${size}${fitted}`, bits);
    set(slider, { "aria-valuetext": `${DATA.labels[method][index]}, ${size}${fitted}` });
    document.querySelectorAll("button[data-level]").forEach((button) => {
      const place = jump(button.dataset.level);
      button.setAttribute("aria-pressed", place === index && !state.bounds);
      button.disabled = place === undefined;
    });
    document.querySelectorAll("#method input").forEach((input) => { input.checked = input.value === method; });
    document.querySelectorAll("#criterion input").forEach((input) => { input.checked = input.value === criterion; });
    find("caution").textContent = DATA.cautions[method] ?? "";
    find("caution").hidden = !DATA.cautions[method];
  }

  // --- bounds of one share ---------------------------------------------------------------------------------

  function bounded() {
    const { grid, low, high } = state.bounds, least = grid.lows[low], most = grid.highs[high];
    const [first, last] = [low === 0, high === grid.highs.length - 1];
    const name = named(DATA.names[grid.context]);
    if (first && last) return ["As fitted, with ", name, ` from ${percent(least)} to ${percent(most)},`];
    return ["As fitted, and with ", name, first ? ` at ${percent(most)} or less,` : ` at ${percent(least)} or more,`];
  }

  function showBounds() {
    if (!DATA.bounds.length) return;
    const on = state.bounds, grid = on?.grid;
    find("bounded").value = on ? DATA.bounds.indexOf(grid) : "";
    for (const [id, values, place] of [["low", grid?.lows, on?.low], ["high", grid?.highs, on?.high]]) {
      const slider = find(id), text = on ? percent(values[place]) : "";
      slider.disabled = !on;
      if (on) slider.max = values.length - 1;
      slider.value = on ? place : id === "high" ? slider.max : 0;
      tell(find(id + "-label"), text, on ? values[place] : null);
      set(slider, { "aria-valuetext": text });
    }
  }

  function bound(change) {
    state.bounds = change && { ...state.bounds, ...change };
    const on = state.bounds;
    state.index = !on ? DATA.chosen : on.low > 0 ? on.grid.low_places[on.low] : on.grid.high_places[on.high];
    show();
  }

  function listenToBounds() {
    if (!DATA.bounds.length) return;
    DATA.bounds.forEach((grid, k) => find("bounded").append(html("option", { value: k }, DATA.names[grid.context])));
    find("bounded").addEventListener("change", (event) => {
      const grid = DATA.bounds[event.target.value];
      bound(grid ? { grid, low: 0, high: grid.highs.length - 1 } : null);
    });
    // One bound at a time: the other opens.
    const most = () => state.bounds.grid.highs.length - 1;
    find("low").addEventListener("input", (event) => bound({ low: Number(event.target.value), high: most() }));
    find("high").addEventListener("input", (event) => bound({ low: 0, high: Number(event.target.value) }));
  }

  // Where a button leads, by the method that is selected.
  function jump(level) {
    if (level === "erm") return 0;
    if (level === "every") return DATA.radii.length - 1;
    if (level === "fitted") return DATA.chosen;
    if (level === "knee") return judgedLevels()?.knee ?? undefined;
    // A confidence whose set would be too small to meet what is known about the mix has no place.
    return DATA.stops[state.method].find(([confidence]) => confidence === Number(level))?.[1];
  }

  let updates = [];
  function redraw() { updates = [drawTradeOff(), drawDecision()]; }
  function show() {
    showControls();
    showBounds();
    showVerdict();
    showHeldOut();
    showContexts();
    updates.forEach((update) => update());
  }

  function go(index) {
    state.index = index;
    state.bounds = null;
    show();
  }

  function listen() {
    find("level").addEventListener("input", (event) => { go(Number(event.target.value)); });
    document.querySelectorAll("button[data-level]").forEach((button) => {
      button.addEventListener("click", () => go(jump(button.dataset.level)));
    });
    find("method").addEventListener("change", (event) => {
      // A confidence that is chosen stays so, and the radius moves; else the radius stays.
      const held = DATA.stops[state.method].find(([, index]) => index === state.index);
      state.method = event.target.value;
      if (held) state.index = jump(held[0]) ?? state.index;
      show();
    });
    find("criterion").addEventListener("change", (event) => { state.criterion = event.target.value; redraw(); show(); });
  }

  find("level").max = DATA.radii.length - 1;
  find("explorer").hidden = false;
  find("needs-script").hidden = true;
  find("levels").open = false;
  drawScale();
  fillLegends();
  redraw();
  listen();
  listenToBounds();
  show();
})();

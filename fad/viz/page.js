// Opens and closes boxes, moves and zooms. Places are computed as in layout.py and drawing.py: change both.
"use strict";
(function () {
  const GAP = 18, ROW_GAP = 30, PAD = 12, TITLE = 22;
  const data = JSON.parse(document.getElementById("data").textContent);
  const svg = document.querySelector("#view svg");
  const boxes = new Map();
  for (const [number, parent, w, h, open] of data.boxes) {
    boxes.set(number, { number, parent, closed: [w, h], open, spots: data.spots[number] || null,
                        g: document.getElementById("b" + number) });
  }
  const order = data.boxes.map((b) => boxes.get(b[0]));
  const routes = new Map(data.routes.map(([a, b, ...bends]) => [a + " " + b, bends]));
  const ports = new Map(data.ports.map(([a, b, port]) => [a + " " + b, port]));
  const isOpen = (box) => box.open && box.spots !== null;

  function path(number) {
    const found = [];
    for (let n = number; n >= 0; n = boxes.get(n).parent) found.push(boxes.get(n));
    return found.reverse();
  }

  function seenOf(boxes) {
    const k = boxes.findIndex((box) => !isOpen(box));
    return k < 0 ? boxes : boxes.slice(0, k + 1);
  }

  function way(here, there) {
    const depth = here.findIndex((box, i) => box !== there[i]);
    const a = here[depth].number, b = there[depth].number;
    const bends = (x, y) => routes.get(x + " " + y) || [];
    const found = [];
    for (let i = here.length - 2; i >= depth; i--) {
      const port = ports.get(here[i].number + " " + b);
      if (port !== undefined) found.push(...bends(here[i + 1].number, port), port);
    }
    found.push(...bends(a, b));
    for (let i = depth; i + 1 < there.length; i++) {
      const port = ports.get(a + " " + there[i].number);
      if (port !== undefined) found.push(port, ...bends(port, there[i + 1].number));
    }
    return found;
  }

  function arrange(spots, sizes) {
    const size = (n) => sizes.get(n) || [0, 0];
    const rows = new Map();
    for (const spot of spots) {
      if (!rows.has(spot[1])) rows.set(spot[1], []);
      rows.get(spot[1]).push(spot);
    }
    const found = new Map();
    let y = 0;
    for (const k of [...rows.keys()].sort((a, b) => a - b)) {
      const row = rows.get(k).slice().sort((a, b) => a[2] - b[2]);
      const height = Math.max(...row.map((s) => size(s[0])[1]));
      let free = -1e30, off = 0;
      const places = row.map((s) => {
        const place = Math.max(s[2], free + size(s[0])[0] / 2);
        free = place + size(s[0])[0] / 2 + GAP;
        off += (place - s[2]) / row.length;
        return place;
      });
      row.forEach((s, i) => {
        if (s[0] < 0) sizes.set(s[0], [0, height]);
        const [w, h] = size(s[0]);
        found.set(s[0], [places[i] - off - w / 2, y + (height - h) / 2]);
      });
      y += height + ROW_GAP;
    }
    let least = Infinity, most = -Infinity;
    for (const [n, [x]] of found) {
      least = Math.min(least, x);
      most = Math.max(most, x + size(n)[0]);
    }
    for (const place of found.values()) place[0] -= least;
    return [found, Math.max(0, most - least), Math.max(0, y - ROW_GAP)];
  }

  function coordinates() {
    const sizes = new Map(order.map((box) => [box.number, box.closed]));
    const inner = new Map();
    for (const box of order.slice().reverse()) {
      if (!isOpen(box)) continue;
      const [found, w, h] = arrange(box.spots, sizes);
      inner.set(box.number, found);
      sizes.set(box.number, [Math.max(w, box.closed[0] - 2 * PAD) + 2 * PAD, h + 2 * PAD + TITLE]);
    }
    const at = new Map([[0, [0, 0, ...sizes.get(0)]]]);
    for (const box of order) {
      if (!inner.has(box.number) || !at.has(box.number)) continue;
      const [left, top] = at.get(box.number);
      for (const [n, [x, y]] of inner.get(box.number)) {
        at.set(n, [left + PAD + x, top + PAD + TITLE + y, ...(sizes.get(n) || [0, 0])]);
      }
    }
    return at;
  }

  function curve(points) {
    let d = "M" + points[0].join(" ");
    for (let i = 1; i < points.length; i++) {
      const [x, y] = points[i - 1], [u, v] = points[i], m = (y + v) / 2;
      d += `C${x} ${m} ${u} ${m} ${u} ${v}`;
    }
    return d;
  }

  function add(parent, tag, attributes, text) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const name in attributes) element.setAttribute(name, attributes[name]);
    if (text) element.textContent = text;
    parent.appendChild(element);
  }

  function draw() {
    const at = coordinates();
    for (const box of order) {
      if (!box.g) continue;
      const place = at.get(box.number);
      box.g.style.display = place ? "" : "none";
      if (!place) continue;
      box.g.setAttribute("transform", `translate(${place[0]} ${place[1]})`);
      const rect = box.g.querySelector("rect");
      rect.setAttribute("width", place[2]);
      rect.setAttribute("height", place[3]);
      box.g.classList.toggle("frame", isOpen(box));
    }
    const seen = new Map();
    for (const [a, b, count] of data.edges) {
      const here = seenOf(path(a)), there = seenOf(path(b));
      const from = here[here.length - 1].number, to = there[there.length - 1].number;
      if (from === to) continue;
      const key = from + " " + to, known = seen.get(key);
      seen.set(key, { from, to, bends: way(here, there), count: count + (known ? known.count : 0) });
    }
    const through = (n) => {
      const [x, y, , h] = at.get(n);
      return [[x, y], [x, y + h]];
    };
    const edges = svg.querySelector(".edges");
    edges.textContent = "";
    for (const { from, to, bends, count } of seen.values()) {
      const [x, y, w, h] = at.get(from), [u, v, width] = at.get(to);
      const points = [[x + w / 2, y + h], ...bends.flatMap(through), [u + width / 2, v]];
      add(edges, "path", { class: "edge", "data-from": from, "data-to": to, d: curve(points),
                           "marker-end": "url(#fad-arrow)" });
      if (count > 1) add(edges, "text", { class: "times", x: u + width / 2 + 4, y: v - 8 }, count + "×");
    }
    return at.get(0);
  }

  let view = [0, 0, 1, 1];
  function show() {
    svg.setAttribute("viewBox", view.join(" "));
  }
  function fit() {
    const [, , w, h] = draw(), room = svg.getBoundingClientRect();
    const scale = Math.max(w / room.width, (h + 60) / room.height, 0.6);
    view = [w / 2 - room.width * scale / 2, -44 * scale, room.width * scale, room.height * scale];
    show();
  }
  function zoom(factor, x, y) {
    view = [x - (x - view[0]) * factor, y - (y - view[1]) * factor, view[2] * factor, view[3] * factor];
    show();
  }
  function point(event) {
    const room = svg.getBoundingClientRect();
    return [view[0] + (event.clientX - room.left) / room.width * view[2],
            view[1] + (event.clientY - room.top) / room.height * view[3]];
  }
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(event.deltaY / 500), ...point(event));
  }, { passive: false });
  let grip = null, moved = false;
  svg.addEventListener("pointerdown", (event) => { grip = point(event); moved = false; });
  svg.addEventListener("pointermove", (event) => {
    if (grip === null || !event.buttons) return;
    const [x, y] = point(event);
    moved = moved || Math.hypot(x - grip[0], y - grip[1]) > 3;
    view[0] -= x - grip[0];
    view[1] -= y - grip[1];
    show();
  });
  svg.addEventListener("pointerup", () => { grip = null; });
  svg.addEventListener("click", (event) => {
    const g = event.target.closest(".opens");
    if (!g || moved) return;
    const box = boxes.get(Number(g.id.slice(1)));
    box.open = !box.open;
    draw();
  });
  const press = (id, f) => document.getElementById(id).addEventListener("click", f);
  const middle = () => [view[0] + view[2] / 2, view[1] + view[3] / 2];
  const all = (open) => () => {
    for (const box of order) if (box.number) box.open = open;
    fit();
  };
  press("fit", fit);
  press("in", () => zoom(0.8, ...middle()));
  press("out", () => zoom(1.25, ...middle()));
  press("open", all(true));
  press("close", all(false));
  fit();
})();

// Runs the script of a page of `fad.viz` under Node.js, on elements that only keep their attributes.
"use strict";
const fs = require("fs");
const [dataFile, scriptFile, clicks] = process.argv.slice(2);

function element(id) {
  const listeners = {}, attributes = {}, children = [], classes = new Set();
  return {
    id, attributes, children, style: {}, listeners,
    classList: { toggle: (name, on) => (on ? classes.add(name) : classes.delete(name)) },
    setAttribute: (name, value) => { attributes[name] = value; },
    removeAttribute: () => {},
    appendChild: (child) => { children.push(child); },
    addEventListener: (kind, f) => { listeners[kind] = f; },
    getBoundingClientRect: () => ({ left: 0, top: 0, width: 800, height: 600 }),
    querySelector: (what) => (what === ".edges" ? edges : (attributes.rect = attributes.rect || element("rect"))),
    closest: function () { return this; },
    set textContent(text) { children.length = 0; },
  };
}

const known = new Map(), edges = element("edges"), svg = element("svg");
globalThis.document = {
  getElementById: (id) => {
    if (id === "data") return { textContent: fs.readFileSync(dataFile, "utf8") };
    if (id === "b0") return null; // the page itself
    if (!known.has(id)) known.set(id, element(id));
    return known.get(id);
  },
  querySelector: () => svg,
  createElementNS: (space, tag) => Object.assign(element(tag), { tag }),
};
eval(fs.readFileSync(scriptFile, "utf8"));
for (const id of (clicks || "").split(",").filter(Boolean)) {
  if (id.startsWith("b")) svg.listeners.click({ target: known.get(id) });
  else known.get(id).listeners.click();
}
const places = {};
for (const [id, g] of known) {
  if (!g.attributes.rect || g.style.display === "none") continue;
  const [x, y] = g.attributes.transform.match(/-?\d+(\.\d+)?(e-?\d+)?/g).map(Number);
  places[id] = [x, y, g.attributes.rect.attributes.width, g.attributes.rect.attributes.height];
}
const lines = edges.children.filter((c) => c.tag === "path").map((c) => [c.attributes["data-from"], c.attributes["data-to"], c.attributes.d]);
process.stdout.write(JSON.stringify({ places, lines }));

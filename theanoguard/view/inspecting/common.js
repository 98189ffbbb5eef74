// What the tree and the picture share.
const make = (tag, attributes, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== ""));
  return element;
};

const button = (text, act, attributes = {}) => {
  const element = make("button", { type: "button", ...attributes }, text);
  element.onclick = act;
  return element;
};

// Facts as a list: pairs of what each is about, and a text or elements.
const listed = (facts) => {
  const list = make("dl", {});
  for (const [name, ...told] of facts) list.append(make("dt", {}, name), make("dd", {}, ...told));
  return list;
};

// `about(i)` tells {names, op, line, bad, text} of the i-th of `count` things.  The function
// that is returned gives the numbers of those that fit all words of a query, best first.  A name
// comes before a part of one, and that before anything else that is known.
const finder = (count, about) => {
  let known = null;
  const learn = () => Array.from({ length: count }, (_, i) => {
    const { names, op, line, bad, text } = about(i);
    const lower = names.filter(Boolean).map((name) => name.toLowerCase());
    return { names: lower, op: op.toLowerCase(), line, bad, text: text.toLowerCase() };
  });
  const ofNames = (names, wanted) => {
    if (names.includes(wanted)) return 0;
    if (names.some((name) => name.startsWith(wanted))) return 1;
    return names.some((name) => name.includes(wanted)) ? 2 : 4;
  };
  const rank = (thing, word) => {
    const [, kind, wanted] = /^(op|name|line):(.+)$/.exec(word) ?? [];
    if (kind === "op") return thing.op.includes(wanted) ? 0 : 4;
    if (kind === "name") return ofNames(thing.names, wanted);
    if (kind === "line") return thing.line.endsWith(`:${wanted}`) || thing.line.endsWith(` ${wanted}`) ? 0 : 4;
    if (word === "bad" && thing.bad) return 0;
    return Math.min(ofNames([...thing.names, thing.op], word), thing.text.includes(word) ? 3 : 4);
  };
  return (query) => {
    known ??= learn();
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    // A name may have spaces in it.
    const whole = words.join(" ");
    const ranked = known.map((thing, i) => {
      const ranks = words.map((word) => rank(thing, word));
      const worst = Math.max(...ranks);
      return [worst < 4 ? Math.min(worst, ofNames([...thing.names, thing.op], whole)) : 4, i];
    });
    return ranked.filter(([n]) => n < 4).sort(([a], [b]) => a - b).map(([, i]) => i);
  };
};

// A field to search with: `show(i)` brings a thing into view, `leave()` is what Down does.
const searching = (find, show, leave) => {
  const field = make("input", {
    type: "search", placeholder: "Search: W1, op:log, line:13, bad",
    "aria-label": "Search the graph; Enter for the next",
  });
  const found = make("output", {});
  let hits = [], at = -1;
  const next = (by) => {
    if (!hits.length) return;
    at = (at + by + hits.length) % hits.length;
    show(hits[at]);
    found.value = `${at + 1} of ${hits.length}`;
  };
  field.oninput = () => {
    hits = find(field.value);
    at = -1;
    found.value = field.value.trim() ? `${hits.length} found` : "";
    next(1);
  };
  field.onkeydown = (event) => {
    if (event.key === "Enter") next(event.shiftKey ? -1 : 1);
    else if (event.key === "ArrowDown") leave();
    else return;
    event.preventDefault();
  };
  return [field, found];
};

// Unpacks the data and builds everything that has the name and is not built yet.
const start = (build, id, title, packed) => {
  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  new Response(inflated).json().then((data) => {
    for (const host of document.querySelectorAll(`[id="${id}"]:not([data-ready])`)) {
      host.dataset.ready = "";
      build(host, title, data);
    }
  });
};

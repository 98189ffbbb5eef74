(host, title, { things, views, first, chosen: startAt, linked }) => {
  const NS = "http://www.w3.org/2000/svg";
  const draw = (tag, attributes) => {
    const element = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const numberOf = new Map(things.map((thing, i) => [thing.key, i]));
  // A picture opens whole, if need be with small text; with a bad node, that is readable.
  const smallest = startAt >= 0 ? 1 : 0.35;
  let at = first, chosen = null, zoom = 1, fitted = null;

  const way = make("nav", { "aria-label": `Where this is in ${title}` });
  const scroll = make("div", { class: "tg-scroll", tabindex: "-1" });
  const map = draw("svg", { class: "tg-map", "aria-hidden": "true" });
  const stage = make("div", { class: "tg-stage" }, scroll);
  const panel = make("div", {
    role: "region", "aria-label": `The chosen node of ${title}`, class: "tg-panel", tabindex: "0",
  }, "Choose a box with the mouse or the arrow keys.");
  let svg = null;

  const boxes = () => [...svg.querySelectorAll(".tg-box")];
  const boxOf = (number) => svg.querySelector(`[data-n="${number}"]:not(.tg-elsewhere)`)
    ?? svg.querySelector(`[data-n="${number}"]`);
  // (in the drawing's own coordinates)
  const middle = (box) => {
    const { x, y, width, height } = box.querySelector("rect:last-of-type").getBBox();
    return [x + width / 2, y + height / 2];
  };

  // -- views

  const resize = () => {
    const [width, height] = views[at].size;
    // (a notebook's own style must not make it smaller)
    svg.style.width = `${width * zoom}px`;
    svg.style.height = `${height * zoom}px`;
    look();
  };

  // As large as shows all of the view, but neither above its own size nor below `least`.
  const fit = (least) => {
    const [width, height] = views[at].size;
    scroll.style.height = "";
    zoom = Math.max(least, Math.min(1, scroll.clientWidth / width, scroll.clientHeight / height));
    scroll.style.height = `${Math.min(height * zoom + 4, scroll.clientHeight)}px`;
    fitted = scroll.clientWidth;
    resize();
  };

  const look = () => {
    const [width, height] = views[at].size;
    const all = scroll.scrollWidth <= scroll.clientWidth + 1 && scroll.scrollHeight <= scroll.clientHeight + 1;
    map.style.display = all ? "none" : "block";
    const seen = map.querySelector(".tg-seen");
    // (a drawing that is narrower than its place stands in the middle)
    seen.setAttribute("x", scroll.scrollLeft / zoom);
    seen.setAttribute("y", scroll.scrollTop / zoom);
    seen.setAttribute("width", Math.min(scroll.clientWidth / zoom, width));
    seen.setAttribute("height", Math.min(scroll.clientHeight / zoom, height));
  };

  const open = (number) => {
    at = number;
    const { svg: inside, size: [width, height], title: called } = views[at];
    const text = `<svg xmlns="${NS}">${inside}</svg>`;
    const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    svg = draw("svg", {
      class: "tg-graph", viewBox: `0 0 ${width} ${height}`, role: "group",
      "aria-label": `${title}: ${called}`,
    });
    svg.append(...document.importNode(parsed, true).childNodes);
    scroll.replaceChildren(svg);
    const small = Math.min(150 / width, 110 / height);
    map.setAttribute("viewBox", `0 0 ${width} ${height}`);
    map.setAttribute("width", width * small);
    map.setAttribute("height", height * small);
    map.replaceChildren();
    for (const box of boxes()) {
      const hint = box.querySelector("title").textContent;
      box.setAttribute("role", "button");
      box.setAttribute("aria-label", hint);
      box.setAttribute("tabindex", "-1");
      const marks = ["tg-bad", "tg-path"].filter((css) => box.classList.contains(css));
      const copy = box.querySelector("rect:last-of-type").cloneNode();
      copy.setAttribute("class", marks.join(" "));
      map.append(copy);
    }
    map.append(draw("rect", { class: "tg-seen" }));
    const steps = [];
    for (let i = at; i >= 0; i = views[i].above) steps.unshift(i);
    way.replaceChildren(...steps.flatMap((i) => {
      const last = i === at;
      const part = last ? make("b", {}, views[i].title) : button(views[i].title, () => { open(i); first_box(); });
      return last ? [part] : [part, make("span", { "aria-hidden": "true" }, "›")];
    }));
    mark();
    fit(smallest);
    scroll.scrollTo((scroll.scrollWidth - scroll.clientWidth) / 2, 0);
  };

  const first_box = () => {
    const box = svg.querySelector(".tg-bad") ?? svg.querySelector(".tg-path") ?? boxes()[0];
    if (box) choose(box);
  };

  const center = (box) => {
    const [x, y] = middle(box);
    scroll.scrollTo(x * zoom - scroll.clientWidth / 2, y * zoom - scroll.clientHeight / 2);
  };

  // -- choosing

  const mark = () => {
    for (const box of boxes()) {
      const same = chosen !== null && box.dataset.n === String(chosen);
      box.classList.toggle("tg-chosen", same);
      box.classList.toggle("tg-linked", marked.has(Number(box.dataset.n)) && "n" in box.dataset);
    }
    const stop = (chosen !== null && boxOf(chosen)) || svg.querySelector(".tg-bad") || boxes()[0];
    for (const box of boxes()) box.setAttribute("tabindex", box === stop ? "0" : "-1");
  };
  let marked = new Set();

  const choose = (box, focus = true) => {
    for (const other of boxes()) other.setAttribute("tabindex", other === box ? "0" : "-1");
    if (focus) {
      box.focus({ preventScroll: true });
      const [x, y] = middle(box);
      const left = x * zoom - scroll.scrollLeft, top = y * zoom - scroll.scrollTop;
      if (left < 60 || top < 40 || left > scroll.clientWidth - 60 || top > scroll.clientHeight - 40) center(box);
    }
    if (!("n" in box.dataset)) {
      const title = box.querySelector("title").textContent;
      panel.replaceChildren(make("p", { class: "tg-chosen-name" }, box.querySelector("text").textContent), make("p", {}, title));
      if ("opens" in box.dataset) {
        panel.append(button("Open", () => { open(Number(box.dataset.opens)); first_box(); }));
      }
      return;
    }
    chosen = Number(box.dataset.n);
    mark();
    const thing = things[chosen];
    const facts = thing.facts.map(([name, text]) => [name, text]);
    const inside = (thing.inside ?? []).map(([name, number]) => button(`Open the ${name}`, () => {
      open(number);
      first_box();
    }));
    const home = thing.view !== at ? [button("Show it with all around it", () => reveal(chosen))] : [];
    panel.replaceChildren(
      make("p", { class: "tg-chosen-name" }, [...new Set([thing.label, thing.role, thing.key])].join(" ")),
      listed(facts), ...inside, ...home,
    );
    host.dispatchEvent(new CustomEvent("tg-chosen", { bubbles: true, detail: linked[thing.key] ?? [] }));
  };

  // Opens the view that a thing stands in.
  const reveal = (number, focus = true) => {
    if (!boxOf(number) || boxOf(number).classList.contains("tg-elsewhere") || at !== things[number].view) {
      open(things[number].view);
    }
    const box = boxOf(number);
    if (!box) return;
    center(box);
    choose(box, focus);
  };

  // What another picture beside this one has chosen.
  host.addEventListener("tg-mark", (event) => {
    marked = new Set(event.detail.map((key) => numberOf.get(key)));
    const [one] = marked;
    if (one !== undefined && !boxOf(one)) open(things[one].view);
    if (one !== undefined && boxOf(one)) center(boxOf(one));
    mark();
  });
  host.addEventListener("tg-chosen", (event) => {
    for (const other of host.parentElement.querySelectorAll(".tg-picture")) {
      if (other !== host) other.dispatchEvent(new CustomEvent("tg-mark", { detail: event.detail }));
    }
  });

  // -- keys, the mouse and the wheel

  const up = () => {
    if (views[at].above < 0) return;
    open(views[at].above);
    if (chosen !== null && boxOf(chosen)) choose(boxOf(chosen));
    else first_box();
  };
  const enter = (box) => {
    const { inside } = things[box.dataset.n] ?? {};
    if ("opens" in box.dataset || inside) {
      open(inside ? inside[0][1] : Number(box.dataset.opens));
      first_box();
    } else if (box.classList.contains("tg-elsewhere")) reveal(Number(box.dataset.n));
    else choose(box);
  };
  // The nearest box in a direction, in the next layers first.
  const go = (box, dx, dy) => {
    const [x, y] = middle(box);
    let best = null, least = Infinity;
    for (const other of boxes()) {
      const [toX, toY] = middle(other);
      const far = Math.abs(toX - x) + 2 * Math.abs(toY - y);
      if (other !== box && (toX - x) * dx + (toY - y) * dy > 1 && far < least) [best, least] = [other, far];
    }
    if (best) choose(best);
  };
  const scale = (by) => {
    if (by === 0) return fit(0);
    fitted = null;
    zoom = Math.min(4, Math.max(Math.min(zoom, 0.2), zoom * by));
    resize();
    if (chosen !== null && boxOf(chosen)) center(boxOf(chosen));
  };
  const toBad = (focus) => {
    open(first);
    if (startAt >= 0 && boxOf(startAt)) {
      center(boxOf(startAt));
      choose(boxOf(startAt), focus);
    }
  };
  const keys = {
    ArrowUp: (box) => go(box, 0, -1), ArrowDown: (box) => go(box, 0, 1),
    ArrowLeft: (box) => go(box, -1, 0), ArrowRight: (box) => go(box, 1, 0),
    Enter: enter, " ": enter, Escape: up, Backspace: up,
    "+": () => scale(1.25), "-": () => scale(0.8), 0: () => scale(0), b: () => toBad(true),
  };
  stage.onkeydown = (event) => {
    const box = event.target.closest(".tg-box");
    if (!box || !keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    keys[event.key](box);
    event.preventDefault();
    event.stopPropagation();
  };
  let dragged = null;
  scroll.onpointerdown = (event) => {
    dragged = { x: event.clientX + scroll.scrollLeft, y: event.clientY + scroll.scrollTop };
  };
  scroll.onpointermove = (event) => {
    if (dragged && event.buttons) scroll.scrollTo(dragged.x - event.clientX, dragged.y - event.clientY);
  };
  scroll.onclick = (event) => {
    const box = event.target.closest(".tg-box");
    if (!box) return;
    if ("opens" in box.dataset) enter(box);
    else choose(box);
  };
  scroll.ondblclick = (event) => {
    const box = event.target.closest(".tg-box");
    if (box) enter(box);
  };
  scroll.onscroll = look;
  scroll.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    scale(event.deltaY < 0 ? 1.15 : 0.87);
    event.preventDefault();
  }, { passive: false });
  const toPlace = (event) => {
    if (!event.buttons) return;
    const { left, top, width, height } = map.getBoundingClientRect();
    const [all, tall] = views[at].size;
    scroll.scrollTo(
      ((event.clientX - left) / width) * all * zoom - scroll.clientWidth / 2,
      ((event.clientY - top) / height) * tall * zoom - scroll.clientHeight / 2,
    );
  };
  map.onpointerdown = map.onpointermove = toPlace;

  // -- all together

  const find = finder(things.length, (i) => {
    const { name, role, label, line, bad, events, facts, key } = things[i];
    const text = [role, line, ...events, ...facts.map(([, value]) => value)].join("\n");
    return { names: [name, key], op: label, line, bad, text };
  });
  const search = searching(find, (i) => reveal(i, false), () => {
    const box = (chosen !== null && boxOf(chosen)) || boxes()[0];
    if (box) choose(box);
  });
  const bar = make("div", { class: "tg-bar" }, ...search, button("Up", up), button("Fit", () => scale(0)),
    button("+", () => scale(1.25), { "aria-label": "Larger" }),
    button("−", () => scale(0.8), { "aria-label": "Smaller" }));
  if (startAt >= 0) bar.append(button("Bad node", () => toBad(true)));
  const legend = host.querySelector("template").content;
  host.querySelector(".tg-plain").replaceWith(
    bar, way, make("div", { class: "tg-both" }, stage, make("div", { class: "tg-side" }, map, panel)), legend,
  );
  toBad(false);
  // (a notebook may draw it before it has a width)
  new ResizeObserver(() => {
    if (fitted === null || fitted === scroll.clientWidth) return look();
    fit(smallest);
    if (chosen !== null && boxOf(chosen)) center(boxOf(chosen));
  }).observe(scroll);
}

(host, title, { graphs, words, counts }) => {
  const items = new WeakMap(); // element -> item
  const rowOf = (item) => graphs[item.graph].rows[item.row];
  const marks = graphs.map(({ path, bad }) => ({ path: new Set(path), bad: new Set(bad) }));
  let chosen = null;

  const cell = (css, text, ...more) => {
    const element = make("span", { role: "gridcell", class: css }, text ?? "", ...more);
    if (text) element.title = text;
    return element;
  };
  const heads = ["!", "Expression", "Line", "Role or name", "Type", "Last value"].map((text) =>
    make("span", { role: "columnheader", title: text === "!" ? "Mark" : text }, text));
  const tree = make("div", { role: "rowgroup", class: "tg-body" });
  const grid = make(
    "div", { role: "treegrid", "aria-label": title, class: "tg-grid" },
    make("div", { role: "rowgroup", class: "tg-body" }, make("div", { role: "row", class: "tg-head" }, ...heads)),
    tree,
  );
  const scroll = make("div", { class: "tg-rows" }, grid);
  const panel = make("div", {
    role: "region", "aria-label": `The chosen row of ${title}`, class: "tg-panel", tabindex: "0",
  });

  // -- rows: an item is one place in the tree; a row of the data may stand in several

  const newItem = (graph, row, parent, inner) => {
    const item = { graph, row, parent, inner, level: parent ? parent.level + 1 : 1, kids: null, open: false };
    if (inner === undefined) {
      const { up, home } = rowOf(item);
      const above = parent && parent.inner === undefined ? parent.row : -1;
      item.away = home >= 0 && !(home === row && up === above);
    }
    item.leaf = inner === undefined && (item.away || rowOf(item).home < 0);
    item.element = make(
      "div",
      {
        role: "row", class: "tg-row", tabindex: -1,
        "aria-level": item.level, "aria-selected": false,
      },
      ...(inner !== undefined ? [cell("tg-event", ""), first(item, inner)] : contentOf(item)),
    );
    if (!item.leaf) item.element.setAttribute("aria-expanded", false);
    items.set(item.element, item);
    return item;
  };

  // The cell with the arrow, as far to the right as the row is deep.
  const first = (item, text, css = "") => {
    const arrow = make("span", { class: "tg-arrow", "aria-hidden": "true" });
    const label = make("span", { class: `tg-label ${css}`.trim() }, text);
    const element = make("span", { role: "gridcell", title: text }, arrow, label);
    element.style.paddingInlineStart = `${(Math.min(item.level, 16) - 1) * 0.6}em`;
    return element;
  };

  const markOf = (events) => {
    const element = cell("tg-event", events.length ? "\u25CF" : "");
    element.title = events.join("; ");
    if (events.length) element.setAttribute("aria-label", element.title);
    return element;
  };

  // In a narrow column the name of the file is cut, not the number of the line.
  const lineOf = (place) => {
    const [, file, line] = /^(.*?)((?::|, line )\d+)?$/.exec(place ?? "");
    const element = cell("tg-line", "", make("span", {}, file), make("span", {}, line ?? ""));
    element.title = place ?? "";
    return element;
  };

  const contentOf = (item) => {
    const row = rowOf(item);
    const { path, bad } = marks[item.graph];
    const css = bad.has(item.row) ? "tg-bad" : path.has(item.row) ? "tg-path" : "";
    return [
      markOf(row.events),
      first(item, words[row.label], css),
      lineOf(words[row.line]),
      cell("tg-name", words[row.role]),
      item.away ? cell("tg-key", `${row.key} ↗`) : cell("tg-type", words[row.type]),
      cell("tg-value", row.value),
    ];
  };

  const number = (list) => {
    list.forEach((item, i) => {
      item.element.setAttribute("aria-setsize", list.length);
      item.element.setAttribute("aria-posinset", i + 1);
    });
    return list;
  };
  const top = number(graphs[0].roots.map((row) => newItem(0, row, null)));

  const kidsOf = (item) => {
    if (item.kids) return item.kids;
    if (item.inner !== undefined) {
      item.kids = graphs[item.graph].roots.map((row) => newItem(item.graph, row, item));
    } else {
      const { inputs, inner } = rowOf(item);
      item.kids = inputs.map((row) => newItem(item.graph, row, item));
      item.kids.push(...inner.map(([name, graph]) => newItem(graph, -1, item, name)));
    }
    return number(item.kids);
  };

  const open = (item) => {
    if (item.leaf || item.open) return;
    item.open = true;
    item.element.setAttribute("aria-expanded", true);
    const elements = [];
    const todo = [...kidsOf(item)].reverse();
    while (todo.length) {
      const next = todo.pop();
      elements.push(next.element);
      if (next.open) todo.push(...[...next.kids].reverse());
    }
    item.element.after(...elements);
  };

  const close = (item) => {
    if (!item.open) return;
    item.open = false;
    item.element.setAttribute("aria-expanded", false);
    let next = item.element.nextElementSibling;
    while (next && items.get(next).level > item.level) {
      const after = next.nextElementSibling;
      next.remove();
      next = after;
    }
  };

  // -- choosing

  const choose = (item, focus = true) => {
    if (chosen) {
      chosen.element.setAttribute("aria-selected", false);
      chosen.element.tabIndex = -1;
    }
    chosen = item;
    item.element.setAttribute("aria-selected", true);
    item.element.tabIndex = 0;
    if (focus) item.element.focus({ preventScroll: true });
    const { offsetTop, offsetHeight } = item.element;
    const head = grid.querySelector(".tg-head").offsetHeight; // which stays in view
    if (offsetTop < scroll.scrollTop + head) scroll.scrollTop = offsetTop - head;
    const beyond = offsetTop + offsetHeight - scroll.clientHeight;
    if (beyond > scroll.scrollTop) scroll.scrollTop = beyond;
    show(item);
  };

  const show = (item) => {
    if (item.inner !== undefined) return panel.replaceChildren(make("p", { class: "tg-chosen-name" }, item.inner));
    const row = rowOf(item);
    const told = row.facts.map(([name, value]) => [words[name], words[value]]);
    for (const [name, rows] of [["Inputs", row.inputs], ["Read by", row.clients]]) {
      const links = rows.map((other) => {
        const { label, key } = graphs[item.graph].rows[other];
        return button(`${words[label]} ${key}`, () => choose(reveal(item.graph, other)));
      });
      if (links.length) told.push([name, ...links]);
    }
    panel.replaceChildren(make("p", { class: "tg-chosen-name" }, `${words[row.label]} ${row.key}`), listed(told));
  };

  // Opens all that is above a row, and returns its item.
  const reveal = (graph, row) => {
    const way = [];
    for (;;) {
      const { up } = graphs[graph].rows[row];
      const wanted = row, inside = graph;
      way.push((item) => item.inner === undefined && item.row === wanted);
      if (up >= 0) row = up;
      else if (graphs[graph].above) {
        way.push((item) => item.inner !== undefined && item.graph === inside);
        [graph, row] = graphs[graph].above;
      } else break;
    }
    let item = null;
    while (way.length) {
      if (item) open(item);
      item = (item ? item.kids : top).find(way.pop());
    }
    return item;
  };

  const fold = () => {
    for (const item of top) close(item);
  };

  const showBad = (focus) => {
    graphs.forEach(({ path }, graph) => path.forEach((row) => reveal(graph, row)));
    const graph = graphs.findLastIndex(({ bad }) => bad.length);
    if (graph >= 0) choose(reveal(graph, graphs[graph].bad[0]), focus);
    return graph >= 0;
  };

  // -- searching

  const places = graphs.flatMap(({ rows }, graph) => rows.map((_, row) => [graph, row]));
  const find = finder(places.length, (i) => {
    const [graph, number] = places[i];
    const row = graphs[graph].rows[number];
    const { path, bad } = marks[graph];
    const told = [words[row.role], words[row.line], ...row.events, ...row.facts.map(([, value]) => words[value])];
    return {
      names: [words[row.name], row.key], op: words[row.label], line: words[row.line],
      bad: bad.has(number), text: told.join("\n"), path: path.has(number),
    };
  });
  const [search, found] = searching(
    find,
    (i) => choose(reveal(...places[i]), false),
    () => chosen && choose(chosen),
  );

  // -- keys and clicks, after the treegrid pattern of the ARIA Authoring Practices Guide

  const home = (item) => reveal(item.graph, rowOf(item).home);
  const go = (element) => element && choose(items.get(element));
  const rows = tree.children;
  const keys = {
    ArrowDown: (item) => go(item.element.nextElementSibling),
    ArrowUp: (item) => go(item.element.previousElementSibling),
    Home: () => go(rows[0]),
    End: () => go(rows[rows.length - 1]),
    ArrowRight: (item) => {
      if (item.away) choose(home(item));
      else if (item.open) go(item.element.nextElementSibling);
      else open(item);
    },
    ArrowLeft: (item) => {
      if (item.open) close(item);
      else if (item.parent) choose(item.parent);
    },
    Enter: (item) => (item.open ? close(item) : open(item)),
    " ": (item) => choose(item),
    "*": (item) => (item.parent ? item.parent.kids : top).forEach(open),
  };
  tree.onkeydown = (event) => {
    const item = items.get(event.target);
    if (!item || event.ctrlKey || event.metaKey || event.altKey) return;
    if (keys[event.key]) keys[event.key](item);
    else if (event.key.length === 1) {
      const from = [...rows].indexOf(item.element);
      const order = [...rows].slice(from + 1).concat([...rows].slice(0, from));
      const label = (row) => (row.querySelector(".tg-label") ?? row).textContent.toLowerCase();
      go(order.find((row) => label(row).startsWith(event.key.toLowerCase())));
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  tree.onclick = (event) => {
    const element = event.target.closest(".tg-row");
    if (!element) return;
    const item = items.get(element);
    choose(item);
    if (event.target.classList.contains("tg-arrow")) (item.open ? close : open)(item);
  };
  tree.ondblclick = (event) => {
    const element = event.target.closest(".tg-row");
    if (!element) return;
    const item = items.get(element);
    if (item.away) choose(home(item));
    else (item.open ? close : open)(item);
  };

  // -- all together

  const bar = make("div", { class: "tg-bar" }, search, found, button("Fold", fold));
  const count = make("p", { class: "tg-count" }, make("b", {}, title), `: ${counts}`);
  if (marks.some(({ bad }) => bad.size)) bar.append(button("Bad node", () => showBad(true)));
  tree.append(...top.map((item) => item.element));
  host.querySelector(".tg-plain").replaceWith(count, bar, make("div", { class: "tg-both" }, scroll, panel));
  if (!showBad(false)) {
    open(top[0]);
    choose(top[0], false);
  }
}

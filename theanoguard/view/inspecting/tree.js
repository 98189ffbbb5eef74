(id, title, packed) => {
  "use strict";
  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== ""));
    return element;
  };

  const build = (host, { graphs, words }) => {
    const items = new WeakMap(); // element -> item
    const rowOf = (item) => graphs[item.graph].rows[item.row];
    const marks = graphs.map(({ path, bad }) => ({ path: new Set(path), bad: new Set(bad) }));
    let chosen = null;

    const tree = make("div", { role: "tree", "aria-label": title, class: "tg-rows" });
    const panel = make("div", { role: "region", "aria-label": "The chosen row", class: "tg-panel" });
    const search = make("input", {
      type: "search", placeholder: "Search", "aria-label": "Search the graph; Enter for the next",
    });
    const found = make("output", {});

    // -- rows: an item is one place in the tree; a row of the data may stand in several

    const newItem = (graph, row, parent, inner) => {
      const item = { graph, row, parent, inner, level: parent ? parent.level + 1 : 1, kids: null, open: false };
      if (inner === undefined) {
        const { up, home } = rowOf(item);
        const above = parent && parent.inner === undefined ? parent.row : -1;
        item.away = home >= 0 && !(home === row && up === above);
      }
      item.leaf = inner === undefined && (item.away || rowOf(item).home < 0);
      const content = inner !== undefined ? [inner] : contentOf(item);
      item.element = make(
        "div",
        { role: "treeitem", tabindex: -1, "aria-level": item.level, "aria-selected": false },
        make("span", { class: "tg-arrow", "aria-hidden": "true" }), ...content,
      );
      item.element.style.paddingInlineStart = `${Math.min(item.level, 40) * 0.9}em`;
      if (!item.leaf) item.element.setAttribute("aria-expanded", false);
      items.set(item.element, item);
      return item;
    };

    const contentOf = (item) => {
      const row = rowOf(item);
      const { path, bad } = marks[item.graph];
      const part = (css, text) => (text ? make("span", { class: css }, text) : "");
      const label = part("tg-label", words[row.label]);
      if (bad.has(item.row)) label.classList.add("tg-bad");
      else if (path.has(item.row)) label.classList.add("tg-path");
      // What is marked comes first: a long row goes beyond the right edge.
      return [
        ...row.events.map((event) => part("tg-event", event)),
        label, part("tg-name", words[row.name]), part("tg-key", row.key),
        item.away ? part("tg-key", "↗") : part("tg-type", words[row.type]),
        part("tg-line", words[row.line]), part("tg-value", row.value),
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
      if (offsetTop < tree.scrollTop) tree.scrollTop = offsetTop;
      const beyond = offsetTop + offsetHeight - tree.clientHeight;
      if (beyond > tree.scrollTop) tree.scrollTop = beyond;
      show(item);
    };

    const show = (item) => {
      if (item.inner !== undefined) return panel.replaceChildren(make("h4", {}, item.inner));
      const row = rowOf(item);
      const list = make("dl", {});
      for (const [name, value] of row.facts) {
        list.append(make("dt", {}, words[name]), make("dd", {}, words[value]));
      }
      for (const [name, rows] of [["Inputs", row.inputs], ["Read by", row.clients]]) {
        if (!rows.length) continue;
        const links = rows.map((other) => {
          const { label, key } = graphs[item.graph].rows[other];
          const link = make("button", { type: "button" }, `${words[label]} ${key}`);
          link.onclick = () => choose(reveal(item.graph, other));
          return link;
        });
        list.append(make("dt", {}, name), make("dd", {}, ...links));
      }
      panel.replaceChildren(make("h4", {}, `${words[row.label]} ${row.key}`), list);
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

    let hits = [], at = -1, texts = null;
    const lower = (parts) => parts.join("\n").toLowerCase();
    // A name comes before a part of one, and that before anything else that is known of a row.
    const rank = ([text, , , names], wanted) => {
      if (names.includes(wanted)) return 0;
      if (names.some((name) => name.startsWith(wanted))) return 1;
      return names.some((name) => name.includes(wanted)) ? 2 : text.includes(wanted) ? 3 : 4;
    };
    const look = () => {
      texts ??= graphs.flatMap(({ rows }, graph) => rows.map((row, i) => {
        const names = [words[row.name], words[row.label], row.key];
        const told = [...names, ...row.events, ...row.facts.map(([, value]) => words[value])];
        return [lower(told), graph, i, names.map((name) => name.toLowerCase())];
      }));
      const wanted = search.value.trim().toLowerCase();
      hits = [];
      if (wanted) {
        const ranked = texts.map((text) => [rank(text, wanted), text]).filter(([n]) => n < 4);
        hits = ranked.sort(([a], [b]) => a - b).map(([, text]) => text);
      }
      at = -1;
      found.value = wanted ? `${hits.length} found` : "";
    };
    const nextHit = (by) => {
      if (!hits.length) return;
      at = (at + by + hits.length) % hits.length;
      choose(reveal(hits[at][1], hits[at][2]), false);
      found.value = `${at + 1} of ${hits.length}`;
    };
    search.oninput = () => {
      look();
      nextHit(1);
    };
    search.onkeydown = (event) => {
      if (event.key === "Enter") nextHit(event.shiftKey ? -1 : 1);
      if (event.key === "ArrowDown" && chosen) choose(chosen);
      else if (event.key !== "Enter") return;
      event.preventDefault();
    };

    // -- keys and clicks, after the tree pattern of the ARIA Authoring Practices Guide

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
      const element = event.target.closest("[role=treeitem]");
      if (!element) return;
      const item = items.get(element);
      choose(item);
      if (event.target.classList.contains("tg-arrow")) (item.open ? close : open)(item);
    };
    tree.ondblclick = (event) => {
      const element = event.target.closest("[role=treeitem]");
      if (!element) return;
      const item = items.get(element);
      if (item.away) choose(home(item));
      else (item.open ? close : open)(item);
    };

    // -- all together

    const button = (text, act) => {
      const element = make("button", { type: "button" }, text);
      element.onclick = act;
      return element;
    };
    const bar = make("div", { class: "tg-bar" }, search, found, button("Fold", fold));
    if (marks.some(({ bad }) => bad.size)) bar.append(button("Bad node", () => showBad(true)));
    tree.append(...top.map((item) => item.element));
    host.querySelector(".tg-plain").replaceWith(bar, make("div", { class: "tg-both" }, tree, panel));
    if (!showBad(false)) {
      open(top[0]);
      choose(top[0], false);
    }
  };

  const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  new Response(inflated).json().then((data) => {
    for (const host of document.querySelectorAll(`[id="${id}"]:not([data-ready])`)) {
      host.dataset.ready = "";
      build(host, data);
    }
  });
}

// The panel beside one or two pictures of Graphviz: shows the node that is clicked, and marks
// in the other picture what it was rewritten from, or into.
function render({ model, el }) {
  const panel = document.createElement("div");
  panel.className = "tg-panel";
  panel.setAttribute("role", "region");
  panel.setAttribute("aria-label", "The chosen node");
  panel.setAttribute("aria-live", "polite");
  panel.textContent = "Click a node.";
  el.append(panel);

  const nameOf = (node) => node.dataset.name ?? node.querySelector("title")?.textContent;
  const show = (facts) => {
    const list = document.createElement("dl");
    for (const [name, value] of facts) {
      for (const [tag, text] of [["dt", name], ["dd", value]]) {
        const element = document.createElement(tag);
        element.textContent = text;
        list.append(element);
      }
    }
    panel.replaceChildren(list);
  };
  const clicked = (event) => {
    const box = el.closest(".tg-picture");
    const node = event.target.closest?.("g.node");
    if (!box || !node || !box.contains(node)) return;
    const name = nameOf(node);
    const side = node.closest(".tg-before") ? "before" : "after";
    show(model.get("facts")[side][name] ?? []);
    const linked = new Set(model.get("links")[side][name] ?? []);
    const other = side === "before" ? ".tg-after" : ".tg-before";
    for (const each of box.querySelectorAll("g.node")) each.classList.remove("tg-linked");
    for (const each of box.querySelectorAll(`${other} g.node`)) {
      each.classList.toggle("tg-linked", linked.has(nameOf(each)));
    }
  };
  document.addEventListener("click", clicked, true);
  return () => document.removeEventListener("click", clicked, true);
}
export default { render };

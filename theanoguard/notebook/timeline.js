// The steps of a call as a bar: what has been run is pale blue and half as high, a bad step red and
// darker or lighter than that, the step in view has a frame.  A click or an arrow key chooses a step.
function render({ model, el }) {
  const NS = "http://www.w3.org/2000/svg";
  const draw = (tag, attributes) => {
    const element = document.createElementNS(NS, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const WIDTH = 1000, HEIGHT = 24;
  const bar = draw("svg", {
    class: "tg-timeline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none",
    role: "slider", tabindex: "0", "aria-label": "Step", "aria-valuemin": "0",
  });
  const count = document.createElement("span");
  count.className = "tg-step-count";
  const box = document.createElement("div");
  box.className = "tg-step tg-step-bar";
  box.append(bar, count);
  el.append(box);

  const place = (step, least) => {
    const width = WIDTH / Math.max(model.get("max"), 1);
    return { x: (step - 1) * width, width: Math.max(width, least), y: 0, height: HEIGHT };
  };
  const show = () => {
    const [value, max, run] = ["value", "max", "run"].map((name) => model.get(name));
    const parts = [draw("rect", { class: "tg-all", x: 0, y: 0, width: WIDTH, height: HEIGHT })];
    parts.push(draw("rect", { class: "tg-run", ...place(1, 0), y: HEIGHT / 4, height: HEIGHT / 2, width: (WIDTH * run) / Math.max(max, 1) }));
    if (max <= 100) {
      for (let step = 2; step <= max; step += 1) parts.push(draw("rect", { class: "tg-gap", ...place(step, 0), width: 1.5 }));
    }
    for (const step of model.get("bad")) parts.push(draw("rect", { class: "tg-wrong-step", ...place(step, 4) }));
    if (value) parts.push(draw("rect", { class: "tg-here", ...place(value, 8) }));
    bar.replaceChildren(...parts);
    const bad = model.get("bad").includes(value) ? ", bad" : "";
    bar.setAttribute("aria-valuemax", max);
    bar.setAttribute("aria-valuenow", value);
    bar.setAttribute("aria-valuetext", value ? `step ${value} of ${max}${bad}` : "before the first step");
    count.textContent = `${value} of ${max}`;
  };
  const go = (step) => {
    const wanted = Math.min(Math.max(step, 1), model.get("max"));
    if (wanted === model.get("value")) return;
    model.set("value", wanted);
    model.save_changes();
  };
  bar.addEventListener("click", (event) => {
    const { left, width } = bar.getBoundingClientRect();
    go(Math.floor(((event.clientX - left) / width) * model.get("max")) + 1);
    bar.focus();
  });
  bar.addEventListener("keydown", (event) => {
    const value = model.get("value"), max = model.get("max"), page = Math.ceil(max / 10);
    const steps = {
      ArrowRight: value + 1, ArrowUp: value + 1, ArrowLeft: value - 1, ArrowDown: value - 1,
      PageUp: value + page, PageDown: value - page, Home: 1, End: max,
    };
    if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    go(steps[event.key]);
    event.preventDefault();
    event.stopPropagation();
  });
  for (const name of ["value", "max", "run", "bad"]) model.on(`change:${name}`, show);
  show();
}
export default { render };

"use strict";
// Accounting. With K(t) = log E[exp(t L)] of the privacy loss L of all steps,
//   delta(epsilon) = 1/(2 pi i) * integral of exp(K(t) - t epsilon) / (t (t + 1)) dt
// along any vertical line in the right half plane. On the line through the saddle point the integrand decays fastest, so
// that a few dozen points of the trapezoidal rule give many digits. privet rounds losses up to a grid instead, for which it
// needs up to 0.06 % of epsilon, and up to 0.12 % for tens of thousands of steps and tiny deltas. MARGIN is the former, so
// that privet certifies the noise of this page, except in those cases, where it asks for up to 0.1 % more.
const MARGIN = 6e-4;

// Log-sum-exp of exponents (a + b t) + w over a grid, for complex t = x + iy: returns [real, imaginary] of the logarithm.
function logSum(terms, x, y) {
  let top = -Infinity;
  for (const { a, b, loss, weight } of terms) {
    for (let k = 0; k < loss.length; k++) { top = Math.max(top, (a + b * x) * loss[k] + weight[k]); }
  }
  let real = 0, imaginary = 0;
  for (const { a, b, loss, weight } of terms) {
    for (let k = 0; k < loss.length; k++) {
      const size = Math.exp((a + b * x) * loss[k] + weight[k] - top), angle = b * y * loss[k];
      real += size * Math.cos(angle);
      if (y !== 0) { imaginary += size * Math.sin(angle); }
    }
  }
  return [top + Math.log(Math.hypot(real, imaginary)), Math.atan2(imaginary, real)];
}

const gaussian = (mu) => [{
  most: 1e9,
  log: (x, y) => [mu * mu / 2 * (x * x - y * y + x), mu * mu / 2 * (2 * x * y + y)],
}];

function composed(steps, most, ...terms) {
  return { most, log: (x, y) => logSum(terms, x, y).map((each) => each * steps) };
}

const REACH = 9, TILT = 10;  // of the noise, in standard deviations: beyond these, probabilities do not matter

// The logarithm of M/Q for M = (1 - q) N(0, s) + q N(1, s) and Q = N(0, s), at u standard deviations.
function mixtureLoss(q, s, u) {
  return Math.log1p(q * Math.expm1(Math.min(u / s - 1 / (2 * s * s), 700)));
}

// Poisson batches under add-or-remove adjacency: a pair of laws for adding, and one for removing.
function poisson(z, q, steps) {
  const width = 0.08, loss = [], weight = [];
  for (let u = -REACH; u <= REACH + TILT + 1 / z; u += width) {
    loss.push(mixtureLoss(q, z, u));
    weight.push(-u * u / 2 + Math.log(width / Math.sqrt(2 * Math.PI)));
  }
  return [
    composed(steps, TILT * z, { a: 1, b: 1, loss, weight }),
    composed(steps, 1e9, { a: 0, b: -1, loss, weight }),
  ];
}

// Batches of a fixed size under replace-one adjacency: the symmetric pair of docs/proofs.md, section 15. Above 1/2, one law
// is M and the other Q, on one sign, and the reverse on the other sign. The rest of the mass has loss 0.
function fixedSize(z, q, steps) {
  const s = z / 2, low = 0.5 / s, cells = 400, width = (REACH + TILT) / cells, loss = [], weight = [];
  let above = 0;
  for (let k = 0; k <= cells; k++) {
    const u = low + k * width, simpson = k === 0 || k === cells ? 1 : k % 2 ? 4 : 2;
    loss.push(mixtureLoss(q, s, u));
    weight.push(-u * u / 2 + Math.log(simpson * width / 3 / Math.sqrt(2 * Math.PI)));
    above += Math.exp(weight[k]) * (1 + Math.exp(loss[k]));
  }
  const rest = { a: 0, b: 0, loss: [0], weight: [Math.log(Math.max(1 - above, 1e-300))] };
  return [composed(steps, TILT * s, { a: 1, b: 1, loss, weight }, { a: 0, b: -1, loss, weight }, rest)];
}

function logDelta(pairs, epsilon) {
  return Math.min(0, Math.max(...pairs.map((pair) => logDeltaOf(pair, epsilon))));
}

function logDeltaOf({ most, log }, epsilon) {
  const height = (t) => log(t, 0)[0] - t * epsilon - Math.log(t * (t + 1));
  let low = -6, high = Math.min(Math.log(most), 16);
  const share = (Math.sqrt(5) - 1) / 2;  // golden-section search for the saddle point
  let left = high - share * (high - low), right = low + share * (high - low);
  let atLeft = height(Math.exp(left)), atRight = height(Math.exp(right));
  for (let turn = 0; turn < 20; turn++) {
    if (atLeft < atRight) {
      [high, right, atRight] = [right, left, atLeft];
      left = high - share * (high - low);
      atLeft = height(Math.exp(left));
    } else {
      [low, left, atLeft] = [left, right, atRight];
      right = low + share * (high - low);
      atRight = height(Math.exp(right));
    }
  }
  const t = Math.exp((low + high) / 2), top = height(t), nudge = 0.01 * t;
  if (top < -700) { return -Infinity; }  // The loss is bounded, and never that large.
  const curvature = (height(t + nudge) - 2 * top + height(t - nudge)) / (nudge * nudge);
  const step = 0.3 * Math.min(1 / Math.sqrt(Math.max(curvature, 1e-12)), t), points = 400;
  let total = 0.5;
  for (let k = 1; k < points; k++) {
    const y = k * step, [real, imaginary] = log(t, y);
    const size = Math.exp(real - t * epsilon - Math.log(Math.hypot(t, y) * Math.hypot(t + 1, y)) - top);
    const angle = imaginary - y * epsilon - Math.atan2(y, t) - Math.atan2(y, t + 1);
    const taper = k < points / 2 ? 1 : Math.cos(Math.PI * (k / points - 0.5)) ** 2;
    total += size * Math.cos(angle) * taper;
    if (size < 1e-7) { break; }
  }
  return top + Math.log(Math.max(total * step / Math.PI, 1e-300));
}

// The least noise for a budget: the root of log delta, in the logarithm of the noise, by bracketing and false position.
function leastNoise(family, epsilon, delta, guess) {
  const excess = (x) => Math.max(logDelta(family(Math.exp(x)), epsilon), -600) - Math.log(delta);
  let low = Math.log(guess), high = low, atLow = excess(low), atHigh = atLow;
  while (atLow < 0) { [high, atHigh] = [low, atLow]; low -= 0.35; atLow = excess(low); }
  while (atHigh > 0) { [low, atLow] = [high, atHigh]; high += 0.35; atHigh = excess(high); }
  for (let turn = 0; turn < 40 && high - low > 1e-6; turn++) {
    let middle = low + (high - low) * atLow / (atLow - atHigh);
    if (turn % 3 === 2) { middle = (low + high) / 2; }
    const value = excess(middle);
    if (Math.abs(value) < 1e-6) { return Math.exp(middle); }
    if (value > 0) { [low, atLow] = [middle, value]; } else { [high, atHigh] = [middle, value]; }
  }
  return Math.exp(high);
}

// The most that an attack can recognise at each rate of false alarms: the least over epsilon of two straight lines.
function tradeOff(pairs, epsilon) {
  const tangents = [];
  for (let k = 0; k <= 60; k++) {
    const e = 3 * epsilon * (k / 60) ** 1.5;
    tangents.push([e, Math.exp(logDelta(pairs, Math.max(e, 1e-6)))]);
  }
  return (fpr) => Math.min(1, ...tangents.map(([e, d]) =>
    Math.min(Math.exp(e) * fpr + d, 1 - Math.exp(-e) * (1 - d - fpr))));
}

// The page.
const start = JSON.parse(document.getElementById("start").textContent);
const element = (id) => document.getElementById(id);
const nice = [1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8];
const round = (value, digits) => Number(value.toPrecision(digits));

function scale(low, high, given, whole) {
  const values = new Set([given]);
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const each of nice) {
      const value = round(each * 10 ** power, 3);
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) { values.add(whole ? Math.round(value) : value); }
    }
  }
  return [...values].sort((a, b) => a - b);
}

const scales = {
  n: scale(100, 1e6, start.n, true),
  epsilon: scale(0.05, 10, start.epsilon, false),
  delta: scale(1e-9, 1e-3, start.delta, false),
  epochs: scale(1, 100, start.epochs, true),
};
// The batch size that was chosen, infinite for all records. What is shown may have to change with n.
let batch = start.batch < start.n ? start.batch : Infinity;

const at = (name) => scales[name][Number(element(name).value)];

function fill(name, value) {
  const slider = element(name), values = scales[name];
  slider.max = values.length - 1;
  slider.value = values.reduce((best, each, k) => Math.abs(each - value) < Math.abs(values[best] - value) ? k : best, 0);
}

function fillBatches() {
  const n = at("n");
  scales.batch = [...new Set([...scale(Math.ceil(n / start.batches), n, Math.min(batch, n), true), n])].filter((size) => size >= n / start.batches);
  fill("batch", Math.min(batch, n));
}

const digits = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
const raised = (text) => [...text].map((each) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(each)]).join("");
const inWords = (value) => {
  if (value >= 1e-3) { return digits(value); }
  const [mantissa, power] = value.toExponential().split("e");
  return `${mantissa === "1" ? "" : `${mantissa} × `}10${raised(power)}`;
};
// Four digits, rounded up: noise must not be too small.
const upwards = (value) => {
  const unit = 10 ** (Math.floor(Math.log10(value)) - 3);
  return digits(Math.ceil(value / unit * (1 - 1e-12)) * unit);
};
const percent = (share) => `${(Math.ceil(Math.round(share * 1e7) / 1e4) / 10).toFixed(1)}\u00a0%`;

function show(id, name, value) {
  const cell = element(id).querySelector(`[data-name=${name}]`);
  cell.textContent = name === "steps" ? value.toLocaleString("en") : upwards(value);
  cell.dataset.value = value;
}

function plans() {
  const [n, epsilon, delta, epochs] = ["n", "epsilon", "delta", "epochs"].map(at), size = at("batch");
  const steps = Math.ceil(epochs * n / size), q = size / n;
  const mu = 1 / leastNoise((z) => gaussian(1 / z), epsilon, delta, 5 / epsilon);
  const found = {
    "full-replace": { steps: epochs, noise: 2 * Math.sqrt(epochs) / mu, size: n, pairs: gaussian(mu) },
    "full-add": { steps: epochs, noise: Math.sqrt(epochs) / mu, size: n, pairs: gaussian(mu) },
  };
  if (size < n) {
    const guess = Math.max(0.5, 1.1 * q * Math.sqrt(steps) / mu);
    for (const [key, family, factor] of [["poisson", poisson, 1], ["fixed", fixedSize, 2]]) {
      const of = (z) => family(z, q, steps), noise = leastNoise(of, epsilon * (1 - MARGIN), delta, factor * guess);
      found[key] = { steps, noise, size, pairs: of(noise) };
    }
  }
  return { found, epsilon };
}

function update() {
  for (const name of ["n", "epsilon", "delta", "epochs", "batch"]) {
    const value = at(name), words = name === "batch" && value === at("n") ? "all records" : inWords(value);
    element(`${name}-value`).textContent = words;
    element(name).setAttribute("aria-valuetext", words);
  }
  const { found, epsilon } = plans();
  for (const key of ["full-replace", "full-add", "poisson", "fixed"]) {
    const plan = found[key];
    element(key).classList.toggle("absent", !plan);
    if (!plan) { continue; }
    show(key, "steps", plan.steps);
    show(key, "noise", plan.noise);
    show(key, "mean", plan.noise / plan.size);
    show(key, "error", plan.noise * Math.sqrt(2 / Math.PI));
  }
  let chosen = document.querySelector("input[name=scheme]:checked");
  if (!found[chosen.value]) {
    chosen = document.querySelector("input[name=scheme]");
    chosen.checked = true;
  }
  draw(found[chosen.value].pairs, epsilon);
  element("chosen").textContent = Array.from(chosen.parentElement.children).slice(1).map((each) => each.textContent).join(", ");
  const delta = at("delta") < 1e-3 ? at("delta").toExponential() : at("delta");
  const options = ["privet plan", `--n ${at("n")}`, `--epsilon ${at("epsilon")}`, `--delta ${delta}`, `--epochs ${at("epochs")}`];
  if (at("batch") < at("n")) { options.push(`--batch-size ${at("batch")}`); }
  element("command").replaceChildren(...options.flatMap((option, k) => {
    const part = document.createElement("span");
    part.textContent = option;
    return k ? [" ", part] : [part];
  }));
  document.body.dataset.updates = Number(document.body.dataset.updates || 0) + 1;
}

function draw(pairs, epsilon) {
  const recognised = tradeOff(pairs, epsilon), svg = document.querySelector("#trade-off svg");
  const [left, top, right, bottom] = svg.dataset.box.split(" ").map(Number);
  const points = [], guesses = [];
  for (let k = 0; k <= 150; k++) {
    const fpr = (k / 150) ** 2, tpr = recognised(fpr);
    points.push(`${(left + fpr * (right - left)).toFixed(1)},${(bottom - tpr * (bottom - top)).toFixed(1)}`);
    guesses.push((1 + tpr - fpr) / 2);
  }
  svg.querySelector(".line-main").setAttribute("points", points.join(" "));
  svg.querySelector(".area").setAttribute("points", [...points, `${left},${bottom}`].join(" "));
  const best = (1 + Math.exp(logDelta(pairs, 1e-6))) / 2;
  const shown = { guess: best, recognised: recognised(0.01), "recognised-rare": recognised(0.001) };
  for (const [id, value] of Object.entries(shown)) {
    element(id).textContent = percent(value);
    element(id).dataset.value = value;
  }
  svg.querySelector("desc").textContent =
    `At 1 % false alarms, at most ${percent(recognised(0.01))} are recognised. The best guess is right in at most ${percent(best)}.`;
}

for (const name of ["n", "epsilon", "delta", "epochs"]) { fill(name, start[name]); }
fillBatches();
let waiting = false;
element("settings").addEventListener("input", (event) => {
  if (event.target.id === "n") { fillBatches(); }
  if (event.target.id === "batch") { batch = at("batch") < at("n") ? at("batch") : Infinity; }
  if (!waiting) {  // Sliders move faster than numbers are computed.
    waiting = true;
    requestAnimationFrame(() => { waiting = false; update(); });
  }
});
element("settings").addEventListener("submit", (event) => event.preventDefault());
document.querySelectorAll("input[name=scheme]").forEach((each) => each.addEventListener("change", update));
update();

'use strict';
// Times are microseconds since 1970, as in the crate. All decisions are made by `core`; the rest sends requests and draws.

const SECOND = 1e6;
const START = Date.UTC(2026, 0, 1, 12) * 1000;
const FLIGHT = 0.6; // seconds on the screen from a client to the gate, and from the gate on
const PERIODS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];
const STEPS = [0, 1, 2, 5, 10, 15, 30, 60, 300];
const RATES = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20];
const SHAPES = ['circle', 'square', 'triangle'];
const DEFAULTS = { a: '5/10s burst 10', b: '5/10s fixed_window', r: '0.4,0.3,1', w: '3', x: '1' };
const BOTH = [0, 1];

const $ = (id) => document.getElementById(id);
const make = (tag, attributes = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...children);
  return element;
};
const nearest = (list, value) => list.reduce((best, each, i) => (Math.abs(each - value) < Math.abs(list[best] - value) ? i : best), 0);
const still = matchMedia('(prefers-reduced-motion: reduce)');

/** The crate: six functions of numbers, and a buffer for text. */
class Core {
  static async load(packed) {
    const bytes = Uint8Array.from(atob(packed.trim()), (char) => char.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    const { instance } = await WebAssembly.instantiate(await new Response(stream).arrayBuffer());
    return Object.assign(new Core(), { wasm: instance.exports });
  }
  read(length) {
    return new TextDecoder().decode(new Uint8Array(this.wasm.memory.buffer, this.wasm.text_ptr(), length));
  }
  lane(place, text) {
    const buffer = new Uint8Array(this.wasm.memory.buffer, this.wasm.text_ptr(), this.wasm.text_len());
    const length = this.wasm.lane(place, new TextEncoder().encodeInto(text, buffer).written);
    if (length < 0) throw new RangeError(this.read(-length));
    return this.read(length);
  }
  decide(place, now, client, cost = 1) { return this.read(this.wasm.decide(place, now, client, cost)); }
  peek(place, now, client) { return this.read(this.wasm.peek(place, now, client)); }
  version() { return this.read(this.wasm.version()); }
}

let core;
let palette = {};
const lanes = [];
const sim = { now: START, paused: false, speed: 1, watch: 3, rates: [0, 0, 0], next: [0, 0, 0], queue: [], rows: [], seed: 1 };

// Words

const plural = (count, noun) => `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : 's'}`;
const percent = (part, whole) => (whole ? `${Math.floor((100 * part) / whole)} %` : '–');
function wait(micros) {
  if (micros === null) return 'never';
  const seconds = micros / SECOND;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
const span = (micros) => {
  const seconds = micros / SECOND;
  if (seconds % 3600 === 0) return `${seconds / 3600} h`;
  return seconds > 60 && seconds % 60 === 0 ? `${seconds / 60} min` : `${seconds} s`;
};
const clock = (micros, digits = 8) => new Date(micros / 1000).toISOString().slice(11, 11 + digits);
function verdict(answer) {
  if (answer.outcome === 'denied') return answer.retry_after === null ? '429, never' : `429, retry in ${Math.ceil(answer.retry_after / SECOND)} s`;
  return answer.outcome === 'delayed' ? `200 after ${wait(answer.delay)}` : `200, ${answer.remaining} left`;
}
const name = (client) => (client <= 3 ? `client ${client}` : 'fresh key');

// Requests: what is to come stands in `sim.queue`, in the order of time.

function arrive(t, client, more = {}) {
  const arrival = { t, client, lanes: BOTH, ...more };
  let low = 0;
  for (let high = sim.queue.length; low < high;) {
    const middle = (low + high) >> 1;
    if (sim.queue[middle].t <= t) low = middle + 1; else high = middle;
  }
  sim.queue.splice(low, 0, arrival);
}
const flight = () => (still.matches ? 0 : FLIGHT * sim.speed * SECOND);
function random() {
  sim.seed = (Math.imul(sim.seed, 1664525) + 1013904223) >>> 0;
  return sim.seed / 2 ** 32;
}
/** The clients' own requests up to a time: evenly, and a little off, as people are. */
function foresee(until) {
  sim.rates.forEach((rate, i) => {
    while (rate > 0 && sim.next[i] <= until) {
      arrive(sim.next[i], i + 1, { auto: true });
      sim.next[i] += (SECOND / rate) * (0.85 + 0.3 * random());
    }
  });
}
function setRate(i, rate) {
  sim.rates[i] = rate;
  sim.queue = sim.queue.filter((arrival) => !(arrival.auto && arrival.client === i + 1));
  sim.next[i] = sim.now + flight() + (rate > 0 ? (SECOND / rate) * random() : 0);
}
/** Lets time pass, and decides what comes. */
function step(seconds) {
  const until = Math.round(sim.now + seconds * SECOND);
  foresee(until + flight());
  while (sim.queue.length && sim.queue[0].t <= until) {
    const arrival = sim.queue.shift();
    sim.now = Math.max(sim.now, Math.round(arrival.t));
    decide(arrival);
  }
  sim.now = until;
}
function decide(arrival) {
  const row = { t: sim.now, client: arrival.client, cells: ['', ''] };
  for (const place of arrival.lanes) {
    const answer = JSON.parse(core.decide(place, sim.now, arrival.client));
    lanes[place].hear(arrival, answer);
    row.cells[place] = verdict(answer);
    arrival.heard?.(place, answer);
  }
  sim.rows = [row, ...sim.rows.slice(0, 19)];
  return row;
}
/** Sends at once: on the screen it still takes the time of a flight. */
function send(count) {
  const client = sim.watch;
  const tell = (cells) => say(`${name(client)}: lane A ${cells[0]}; lane B ${cells[1]}`);
  for (let i = 0; i < count; i++) {
    if (sim.paused) decide({ t: sim.now, client, lanes: BOTH });
    else arrive(sim.now + flight() + i * 1000, client);
  }
  if (count === 1 && sim.paused) tell(sim.rows[0].cells);
  else say(`${plural(count, 'request')} sent as ${name(client)}`);
}

/** One limit: its quota, what it has answered, and how it is drawn. */
class Lane {
  constructor(place) {
    this.place = place;
    this.root = $(`lane${place}`);
    this.root.append($('lane').content.cloneNode(true));
    this.inputs = Object.fromEntries([...this.root.querySelectorAll('[data-name]')].map((input) => [input.dataset.name, input]));
    this.canvases = ['stage', 'strip'].map((each) => this.find(`.${each}`));
    this.canvases[0].ariaLabel = 'Requests on their way through the limit; the text below says where it stands';
    this.canvases[1].ariaLabel = 'Requests offered and passed; the table below has the shares';
    this.find('.fault').id = `fault${place}`;
    this.inputs.text.setAttribute('aria-describedby', `fault${place}`);
    for (const input of Object.values(this.inputs)) {
      if (input !== this.inputs.text) input.addEventListener('input', () => this.set(this.compose(), input));
    }
    this.inputs.text.addEventListener('input', () => this.set(this.inputs.text.value, this.inputs.text));
    this.inputs.text.addEventListener('change', () => this.show());
    for (const button of this.root.querySelectorAll('[data-copy]')) button.addEventListener('click', () => this.copy(button));
    this.canvases[0].addEventListener('click', (event) => {
      if (event.offsetX < 60 && event.offsetY > 104) watch(Math.min(3, Math.max(1, Math.ceil((event.offsetY - 108) / 32))));
    });
  }
  find(selector) { return this.root.querySelector(selector); }
  /** Takes the quota of a text; one that makes no sense is told, and the last one goes on. */
  set(text, input) {
    const fault = this.find('.fault');
    try {
      this.quota = JSON.parse(core.lane(this.place, text));
      this.clear();
      fault.hidden = true;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      fault.textContent = error.message;
      fault.hidden = false;
    }
    for (const each of Object.values(this.inputs)) each.toggleAttribute('aria-invalid', false);
    if (!fault.hidden) (input ?? this.inputs.text).setAttribute('aria-invalid', 'true');
    if (fault.hidden) this.show(input);
    this.labels();
    save();
    return fault.hidden;
  }
  clear() {
    this.bins = new Map();
    this.clients = SHAPES.map(() => ({ passed: [], answer: null, counts: [0, 0] }));
    this.dots = [];
    this.denial = null;
  }
  hear(arrival, answer) {
    const ok = answer.outcome !== 'denied';
    const dot = this.dots.find((each) => each.arrival === arrival);
    if (dot) Object.assign(dot, { ok, release: sim.now + answer.delay, at: sim.now });
    if (!ok) this.denial = { at: sim.now, text: `✕ ${verdict(answer)}` };
    const client = this.clients[arrival.client - 1];
    if (!client) return;
    client.answer = answer;
    client.counts[ok ? 0 : 1] += 1;
    const bin = this.bin(sim.now);
    bin.offered[arrival.client - 1] += 1;
    if (!ok) return;
    bin.ok[arrival.client - 1] += 1;
    client.passed.push(sim.now + answer.delay);
    this.bin(sim.now + answer.delay).passed[arrival.client - 1] += 1;
    const keep = sim.now - range() - this.quota.period;
    while (client.passed[0] < keep) client.passed.shift();
  }
  bin(t) {
    const number = Math.floor(t / (range() / 60));
    if (!this.bins.has(number)) {
      this.bins.set(number, { offered: [0, 0, 0], ok: [0, 0, 0], passed: [0, 0, 0] });
      for (const old of this.bins.keys()) if (old < number - 200) this.bins.delete(old);
    }
    return this.bins.get(number);
  }
  /** The controls as the text of a quota. */
  compose() {
    const value = (input) => Number(this.inputs[input].value);
    const seconds = PERIODS[value('period')];
    const algorithm = this.inputs.algorithm.value;
    const words = {
      token_bucket: () => (value('burst') ? ` burst ${value('burst')}` : '') + (value('step') ? ` refill_every ${STEPS[value('step')]}s` : ''),
      leaky_bucket: () => ` leaky_bucket queue ${value('queue')}`,
      sliding_window: () => ` sliding_window slices ${value('slices')}`,
    };
    return `${value('limit')}/${seconds}s${words[algorithm]?.() ?? ` ${algorithm}`}`;
  }
  /** Sets the controls to the quota, but the one that is being used. */
  show(used) {
    const quota = this.quota;
    const set = (input, value) => { if (this.inputs[input] !== used) this.inputs[input].value = value; };
    set('text', quota.text);
    set('algorithm', quota.algorithm);
    set('limit', quota.limit);
    set('period', nearest(PERIODS, quota.period / SECOND));
    set('burst', quota.burst ?? 0);
    set('step', nearest(STEPS, (quota.step ?? 0) / SECOND));
    if (quota.queue !== null || used !== this.inputs.algorithm) set('queue', quota.queue ?? 10);
    set('slices', quota.slices ?? 1);
    this.labels();
  }
  labels() {
    const text = (input, words) => { this.inputs[input].parentElement.querySelector('output').textContent = words; };
    const value = (input) => Number(this.inputs[input].value);
    text('limit', value('limit'));
    text('period', span(PERIODS[value('period')] * SECOND));
    text('burst', value('burst') || 'as the limit');
    text('step', value('step') ? `every ${span(STEPS[value('step')] * SECOND)}` : 'evenly');
    text('queue', value('queue'));
    text('slices', value('slices'));
    for (const input of ['period', 'burst', 'step']) {
      this.inputs[input].setAttribute('aria-valuetext', this.inputs[input].parentElement.querySelector('output').textContent);
    }
    for (const label of this.root.querySelectorAll('[data-for]')) label.hidden = label.dataset.for !== this.inputs.algorithm.value;
    const title = [...this.inputs.algorithm.options].find((option) => option.value === this.quota.algorithm).text;
    this.find('h2').textContent = `${'AB'[this.place]}: ${title.toLowerCase()}`;
    this.find('.text').textContent = this.quota.text;
    this.find('.rust').textContent = this.quota.rust;
    this.find('.trailing').textContent = `the last ${span(this.quota.period)}`;
    for (const lane of lanes) if (lane.quota) lane.find('.span').textContent = `the last ${span(range())}`;
  }
  async copy(button) {
    const text = this.quota[button.dataset.copy];
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = 'Copied';
      say(`Copied: ${text}`);
      setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    } catch {
      getSelection().selectAllChildren(this.find('.rust'));
    }
  }
  peek(client = sim.watch) { return JSON.parse(core.peek(this.place, sim.now, client)); }
  /** How many units of the chosen client count, by slices where there are several: [from, to, units, weight]. */
  counted() {
    const { algorithm, period, slices } = this.quota;
    const length = algorithm === 'sliding_window' ? period / (slices ?? 1) : period;
    const parts = [];
    const first = Math.floor((sim.now - period) / length) - 1;
    for (let i = first; i <= Math.floor(sim.now / length); i++) {
      const [from, to] = [i * length, (i + 1) * length];
      const units = this.clients[sim.watch - 1].passed.filter((t) => t >= from && t < to).length;
      const part = (to - (sim.now - period)) / length;
      parts.push([from, to, units, algorithm === 'fixed_window' ? Number(to > sim.now) : Math.min(1, Math.max(0, part))]);
    }
    return parts;
  }
  /** The state of the chosen client in words. */
  state() {
    const { algorithm, capacity, period, limit, step, queue } = this.quota;
    const { remaining, reset_after } = this.peek();
    const used = `${capacity - remaining} of ${capacity} used`;
    const { passed } = this.clients[sim.watch - 1];
    if (algorithm === 'token_bucket') {
      const coming = step ? `refilled every ${span(step)}` : `one more every ${wait(period / limit)}`;
      return `${(step ? remaining : level(this.quota, reset_after)).toFixed(1)} of ${capacity} tokens, ${coming}`;
    }
    if (algorithm === 'leaky_bucket') {
      const waiting = passed.filter((t) => t > sim.now).length;
      return `${waiting} of ${queue} places in the queue taken, one request leaves every ${wait(period / limit)}`;
    }
    if (algorithm === 'fixed_window') return `${used}, the window ends in ${wait(period - (sim.now % period))}`;
    if (algorithm === 'sliding_window') {
      const leaving = this.counted().find(([, to, , weight]) => weight > 0 && to > sim.now - period);
      return `${used}; the oldest slice has ${leaving[2]}, which count ${leaving[3].toFixed(2)} each`;
    }
    const first = passed.find((t) => t > sim.now - period);
    return first === undefined ? used : `${used}, the first of them is forgotten in ${wait(first + period - sim.now)}`;
  }
}
const level = (quota, resetAfter) => Math.max(0, quota.capacity - (resetAfter * quota.limit) / quota.period);
/** The time that the strips show: a minute, or three periods. */
const range = () => Math.max(60 * SECOND, ...lanes.filter((lane) => lane.quota).map((lane) => 3 * lane.quota.period));

// Controls

function watch(client) {
  sim.watch = client;
  document.querySelector(`[name=watch][value="${client}"]`).checked = true;
  refresh();
  save();
}
function pause(on = !sim.paused) {
  sim.paused = on;
  $('pause').setAttribute('aria-pressed', on);
  say(on ? 'Paused' : 'Running');
}
function setSpeed(speed) {
  sim.speed = speed;
  document.querySelector(`[name=speed][value="${speed}"]`).checked = true;
  save();
}
function tell(number, story) {
  $('result').hidden = false;
  $('number').textContent = number;
  $('story').textContent = story;
}
/** Begins a scenario: these quotas with fresh counters, no other requests, and a time that is so far into a minute. */
function scene(a, b, second) {
  if (sim.paused) pause(false);
  const minute = 60 * SECOND;
  sim.queue = [];
  sim.now = (Math.floor(sim.now / minute) + 1) * minute + second * SECOND;
  [a, b].forEach((text, i) => lanes[i].set(text));
  SHAPES.forEach((_, i) => showRate(i, 0));
  setSpeed(1);
  sim.rows = [];
  tell('', 'Here they come …');
}
function windowEdge() {
  scene('5/60s', '5/60s fixed_window', 56.5);
  watch(1);
  const passed = [0, 0];
  let heard = 0;
  for (let i = 0; i < 10; i++) {
    const at = sim.now + (i < 5 ? 1.5 : 5.5) * SECOND + (i % 5) * 60_000;
    arrive(at, 1, { heard: (place, answer) => {
      passed[place] += Number(answer.outcome !== 'denied');
      heard += 1;
      tell(`${passed[0]} : ${passed[1]}`, `Five at :58 and five at :02, where 5 a minute are allowed: A let ${passed[0]} pass, B ${passed[1]}${heard < 20 ? ' so far' : passed[1] > 5 ? ', because a new window began in between' : ''}.`);
      if (heard === 20) say($('story').textContent);
    } });
  }
}
function retryTogether() {
  scene('5/10s', '5/10s fixed_window', 1);
  watch(1);
  const sent = [20, 20];
  const through = [0, 0];
  const started = sim.now + flight();
  const heard = (place, answer) => {
    if (answer.outcome !== 'denied') through[place] += 1;
    else {
      sent[place] += 1;
      // As a client does it: by the whole seconds of the field.
      const told = Number(answer.headers.find(([field]) => field === 'retry-after')[1]);
      arrive(sim.now + told * SECOND, 1, { lanes: [place], heard });
    }
    const took = wait(sim.now - started);
    tell(`${sent[0]} : ${sent[1]}`, `requests until twenty were through, all sent at once and again when Retry-After said: so far A ${through[0]}, B ${through[1]} of 20 through in ${took}.`);
    if (through[0] + through[1] === 40) {
      tell(`${sent[0]} : ${sent[1]}`, `requests on A and B until twenty were through, which took ${took}: all are told the same moment, and come back at it. Headers::jitter spreads them.`);
      say(`${$('number').textContent} ${$('story').textContent}`);
    }
  };
  for (let i = 0; i < 20; i++) arrive(started, 1, { heard });
}
function floodOfKeys() {
  scene('5/60s', '5/60s fixed_window', 5);
  watch(3);
  let fresh = 0;
  const again = [0, 0];
  for (let i = 0; i < 20; i++) arrive(sim.now + flight(), 3);
  for (let i = 0; i < 5000; i++) arrive(sim.now + 1.5 * SECOND + i * 1000, 1000 + i, { heard: () => { fresh += 0.5; } });
  for (let i = 0; i < 14; i++) {
    arrive(sim.now + (2 + i * 0.4) * SECOND, 3, { heard: (place, answer) => {
      again[place] += Number(answer.outcome !== 'denied');
      const { tracked_keys, evictions } = lanes[place].peek();
      tell(tracked_keys.toLocaleString('en'), `keys in each table, which has room for 1,024; ${plural(Math.floor(fresh), 'fresh address')} came and ${evictions.toLocaleString('en')} were given up again. Client 3, over its limit before the flood, still passes ${again[0]} times on A and ${again[1]} on B.`);
      if (i === 13 && place === 1) say(`${$('number').textContent} ${$('story').textContent}`);
    } });
  }
}
function attack() {
  const from = sim.now + flight();
  const ok = [0, 0];
  const all = [0, 0];
  const attacker = [0, 0];
  for (let i = 0; i < 1000; i++) {
    arrive(from + i * 5000, 3, { heard: (place, answer) => { attacker[place] += Number(answer.outcome !== 'denied'); } });
  }
  sim.attack = { until: from + 8 * SECOND, hear(client, place, passed) {
    if (client > 2) return;
    all[place] += 1;
    ok[place] += Number(passed);
  }, tell(over) {
    tell(percent(ok[0] + ok[1], all[0] + all[1]), `of the bystanders' requests pass: ${ok[0]} of ${all[0]} on A, ${ok[1]} of ${all[1]} on B. Of client 3's 1,000 in five seconds ${attacker[0]} passed on A and ${attacker[1]} on B${over ? '' : ' so far'}.`);
  } };
  sim.attack.tell(false);
  say('Attack: 200 requests a second of client 3');
}

// What the page says, outside the drawings, some times a second

let spoken = 0;
let speech;
function say(text) {
  clearTimeout(speech);
  speech = setTimeout(() => {
    spoken = Date.now();
    $('live').textContent = text;
  }, Math.max(0, spoken + 2000 - Date.now()));
}
function shape(client) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('class', 'shape');
  svg.setAttribute('viewBox', '-7 -7 14 14');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  path.setAttribute('d', ['M-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0', 'M-5.5 -5.5h11v11h-11z', 'M0 -6.5L6.8 5.5H-6.8z', 'M-2 0h4'][Math.min(client, 4) - 1]);
  path.style.fill = `var(--${['one', 'two', 'three', 'edge'][Math.min(client, 4) - 1]})`;
  svg.append(path);
  return svg;
}
function refresh() {
  $('clock').textContent = clock(sim.now);
  $('who').textContent = name(sim.watch);
  for (const lane of lanes) {
    lane.find('.state').textContent = `${name(sim.watch).replace('c', 'C')}: ${lane.state()}`;
    const pre = $(`answer${lane.place}`);
    const { answer } = lane.clients[sim.watch - 1];
    pre.className = answer?.outcome ?? '';
    pre.replaceChildren(...(answer ? [make('b', { textContent: `HTTP/1.1 ${answer.status} ${answer.reason}` }),
      `\n${answer.headers.map(([field, value]) => `${field}: ${value}\n`).join('')}\n${answer.body}`] : ['none yet']));
    const since = Math.floor((sim.now - range()) / (range() / 60));
    const shares = [1, 2, 3].map((client) => {
      let [ok, offered] = [0, 0];
      for (const [number, bin] of lane.bins) {
        if (number <= since) continue;
        ok += bin.ok[client - 1];
        offered += bin.offered[client - 1];
      }
      return make('td', { title: `${ok} of ${offered} of ${name(client)}` }, shape(client), make('span', { className: 'hidden', textContent: `${name(client)}: ` }), percent(ok, offered));
    });
    lane.find('.shares tr').replaceChildren(...shares);
  }
  $('rows').replaceChildren(...sim.rows.map((row) => make('tr', {},
    make('td', { textContent: clock(row.t, 12) }), make('td', {}, shape(row.client), name(row.client)),
    ...row.cells.map((text) => make('td', { textContent: text })))));
  sim.attack?.tell(sim.now > sim.attack.until);
  if (sim.attack && sim.now > sim.attack.until) {
    say(`${$('number').textContent} ${$('story').textContent}`);
    sim.attack = null;
  }
}

// Settings in the address

let saved;
function save() {
  if (lanes.length < 2 || !lanes[1].quota) return;
  const [a, b] = lanes.map((lane) => lane.quota.text);
  saved = `#${new URLSearchParams({ a, b, r: sim.rates.join(), w: sim.watch, x: sim.speed })}`;
  history.replaceState(null, '', saved);
}
function showRate(i, rate) {
  setRate(i, rate);
  const row = $('clients').children[i + 1];
  row.querySelector('[type=range]').value = nearest(RATES, rate);
  row.querySelector('[type=range]').setAttribute('aria-valuetext', `${rate} a second`);
  row.querySelector('output').textContent = `${rate} / s`;
  save();
}
function load(settings) {
  const { a, b, r, w, x } = { ...DEFAULTS, ...settings };
  sim.queue = [];
  sim.rows = [];
  sim.attack = null;
  sim.seed = 1;
  sim.speed = [1, 10, 60].includes(Number(x)) ? Number(x) : 1;
  sim.watch = [1, 2, 3].includes(Number(w)) ? Number(w) : 3;
  [a, b].forEach((text, i) => {
    if (lanes[i].set(text)) return;
    const { textContent } = lanes[i].find('.fault');
    lanes[i].quota ??= (lanes[i].set(i ? DEFAULTS.b : DEFAULTS.a), lanes[i].quota);
    Object.assign(lanes[i].find('.fault'), { textContent, hidden: false });
  });
  // A strip that is full from the first moment on: the same requests, sent before anyone looked.
  sim.now = START - range();
  String(r).split(',').slice(0, 3).forEach((rate, i) => showRate(i, Math.min(20, Math.max(0, Number(rate) || 0))));
  step(range() / SECOND);
  setSpeed(sim.speed);
  watch(sim.watch);
}
const fragment = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

async function start() {
  core = await Core.load($('wasm').textContent);
  $('version').textContent = core.version();
  $('clients').append(...SHAPES.map((_, i) => {
    const radio = make('input', { type: 'radio', name: 'watch', value: i + 1, onchange: () => watch(i + 1) });
    const rate = make('input', { type: 'range', min: 0, max: RATES.length - 1, ariaLabel: `Requests a second of client ${i + 1}` });
    rate.addEventListener('input', () => showRate(i, RATES[rate.value]));
    return make('div', {}, make('label', {}, radio, shape(i + 1), `Client ${i + 1}`), rate, make('output'));
  }));
  lanes.push(...BOTH.map((place) => new Lane(place)));
  load(fragment());
  const actions = { pause: () => pause(), one: () => send(1), burst: () => send(20), attack, edge: windowEdge, retry: retryTogether, flood: floodOfKeys,
    reset: () => { $('result').hidden = true; load({}); } };
  for (const [id, action] of Object.entries(actions)) $(id).addEventListener('click', action);
  $('speed').addEventListener('change', (event) => setSpeed(Number(event.target.value)));
  addEventListener('hashchange', () => { if (location.hash !== saved) load(fragment()); });
  addEventListener('keydown', (event) => {
    const typing = event.target.matches?.('input[type=text], select');
    const id = { s: 'one', b: 'burst', a: 'attack', p: 'pause' }[event.key.toLowerCase()];
    if (id && $('keys').checked && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) $(id).click();
  });
  // For tests, and for whoever opens the console.
  globalThis.playground = { core, sim, lanes, step, refresh };
  requestAnimationFrame(frame);
}
start().catch((error) => {
  $('broken').hidden = false;
  $('broken').textContent = `This page cannot run here: ${error.message}`;
});

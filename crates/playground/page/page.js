// Times are microseconds since 1970, as in the crate. All decisions are made by `core`; the rest sends requests and draws.

const SECOND = 1e6;
const START = Date.UTC(2026, 0, 1, 12) * 1000;
const FLIGHT = 0.6; // seconds on the screen from a client to the gate, and from the gate to the service
const PERIODS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600];
const STEPS = [0, 1, 2, 5, 10, 15, 30, 60, 300];
const RATES = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20];
const SHAPES = ['circle', 'square', 'triangle'];
const DEFAULTS = { a: '5/10s', b: '5/10s fixed_window', r: '0.4,0.3,1', w: '3', x: '1' };
const GAPS = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200];
const DAY = 86400; // seconds
const BOTH = [0, 1];
const NARROW = 300; // pixels: a narrower drawing has short labels
const PAST = 10_000; // requests kept for a replay

const $ = (id) => document.getElementById(id);
function make(tag, attributes = {}, ...children) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...children);
  return element;
}
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
  read(length) { return new TextDecoder().decode(new Uint8Array(this.wasm.memory.buffer, this.wasm.text_ptr(), length)); }
  lane(place, text) {
    const buffer = new Uint8Array(this.wasm.memory.buffer, this.wasm.text_ptr(), this.wasm.text_len());
    const length = this.wasm.lane(place, new TextEncoder().encodeInto(text, buffer).written);
    const told = this.read(Math.abs(length));
    if (length < 0) throw new RangeError(told);
    return told;
  }
  decide(place, now, client, cost = 1) { return this.read(this.wasm.decide(place, now, client, cost)); }
  peek(place, now, client) { return this.read(this.wasm.peek(place, now, client)); }
  version() { return this.read(this.wasm.version()); }
}

let core;
const lanes = [];
const sim = { now: START, paused: false, speed: 1, watch: 3, rates: [0, 0, 0], next: [0, 0, 0], queue: [], past: [], rows: [], seed: 1 };

// Words
const plural = (count, noun) => `${count.toLocaleString('en')} ${noun}${count === 1 ? '' : noun.endsWith('s') ? 'es' : 's'}`;
const percent = (part, whole) => (whole ? `${Math.floor((100 * part) / whole)} %` : '–');
function wait(micros) {
  if (micros === null) return 'never';
  const seconds = micros / SECOND;
  if (seconds < 9.95) return `${seconds.toFixed(1)}\u00a0s`;
  if (seconds < 100) return `${Math.round(seconds)}\u00a0s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
const span = (micros) => {
  const seconds = micros / SECOND;
  if (seconds % 3600 === 0) return `${seconds / 3600} h`;
  return seconds > 60 && seconds % 60 === 0 ? `${seconds / 60} min` : `${seconds} s`;
};
const clock = (micros, digits = 8) => new Date(micros / 1000).toISOString().slice(11, 11 + digits);
const date = (micros) => new Date(micros / 1000).toISOString().slice(5, 10);
function verdict(answer) {
  if (answer.outcome === 'denied') return answer.retry_after === null ? '429, never' : `429, retry in ${Math.ceil(answer.retry_after / SECOND)} s`;
  return answer.outcome === 'delayed' ? `200 after ${wait(answer.delay)}` : `200, ${answer.remaining} left`;
}
const name = (client) => (client <= 3 ? `client ${client}` : 'fresh key');

// Requests: `sim.queue` has the future ones, ordered by time.
function arrive(t, client, more = {}) {
  sim.queue.splice(sim.queue.findLastIndex((each) => each.t <= t) + 1, 0, { t, client, lanes: BOTH, ...more });
}
const flight = () => (still.matches ? 0 : FLIGHT * sim.speed * SECOND);
function random() {
  sim.seed = (Math.imul(sim.seed, 1664525) + 1013904223) >>> 0;
  return sim.seed / 2 ** 32;
}
/** The clients' own requests up to a time: evenly spread, with some jitter. */
function foresee(until) {
  sim.rates.forEach((rate, i) => {
    while (rate > 0 && sim.next[i] <= until) {
      arrive(sim.next[i], i + 1, { auto: true });
      sim.next[i] += (SECOND / rate) * (0.85 + 0.3 * random());
    }
  });
}
/** Advances the time, and decides the requests in it. */
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
/** Decides a request, and keeps it for a replay after a change of a limit. */
function decide(arrival) {
  sim.past.push({ t: sim.now, client: arrival.client, lanes: arrival.lanes });
  if (sim.past.length > 1.1 * PAST) sim.past = sim.past.slice(-PAST);
  const row = ask(arrival);
  arrival.lanes.forEach((place) => sim.attack?.hear(arrival.client, place, row.passed[place]));
  arrival.lanes.forEach((place) => arrival.heard?.(place, row.answers[place]));
  return row;
}
/** Decides a request in its lanes, now. */
function ask(arrival) {
  const row = { t: sim.now, client: arrival.client, cells: ['', ''], passed: [], answers: [] };
  for (const place of arrival.lanes) {
    const answer = JSON.parse(core.decide(place, sim.now, arrival.client));
    lanes[place].hear(arrival, answer);
    row.cells[place] = verdict(answer);
    row.passed[place] = answer.outcome !== 'denied';
    row.answers[place] = answer;
  }
  sim.rows = [row, ...sim.rows.slice(0, 19)];
  return row;
}
/** Replays the requests of the strips, in both lanes and with fresh counters. */
function replay() {
  const { now } = sim;
  sim.past = sim.past.filter((arrival) => arrival.t > now - range());
  sim.rows = [];
  for (const lane of lanes) lane.begin();
  for (const arrival of sim.past) {
    sim.now = arrival.t;
    ask(arrival);
  }
  sim.now = now;
  for (const lane of lanes) lane.denial = null;
}
/** Sends immediately; on the screen the flight takes its time. */
function send(count) {
  const client = sim.watch;
  for (let i = 0; i < count; i++) {
    if (sim.paused) decide({ t: sim.now, client, lanes: BOTH });
    else arrive(sim.now + flight() + i * 20_000, client);
  }
  const [a, b] = sim.rows[0]?.cells ?? [];
  say(count === 1 && sim.paused ? `${name(client)}: lane A ${a}; lane B ${b}` : `${plural(count, 'request')} sent as ${name(client)}`);
}

/** One limit: its quota, its responses, and its drawing. */
class Lane {
  constructor(place) {
    this.place = place;
    this.root = $(`lane${place}`);
    this.root.append($('lane').content.cloneNode(true));
    this.inputs = Object.fromEntries([...this.root.querySelectorAll('[data-name]')].map((input) => [input.dataset.name, input]));
    this.canvases = ['stage', 'strip'].map((each) => this.find(`.${each}`));
    this.find('.fault').id = `fault${place}`;
    const { text } = this.inputs;
    text.setAttribute('aria-describedby', `fault${place}`);
    for (const input of Object.values(this.inputs)) input.addEventListener('input', () => this.set(input === text ? text.value : this.compose(), input));
    text.addEventListener('change', () => this.show());
    for (const button of this.root.querySelectorAll('[data-copy]')) button.addEventListener('click', () => this.copy(button));
    this.canvases[0].addEventListener('click', (event) => {
      if (event.offsetX < 60 && event.offsetY > 104) watch(Math.min(3, Math.max(1, Math.ceil((event.offsetY - 108) / 32))));
    });
  }
  find(selector) { return this.root.querySelector(selector); }
  /** Sets the quota from a text; an invalid one is reported, and the last one stays. */
  set(text, input) {
    const fault = this.find('.fault');
    try {
      this.quota = JSON.parse(core.lane(this.place, text));
      fault.hidden = true;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      Object.assign(fault, { textContent: error.message, hidden: false });
    }
    for (const each of Object.values(this.inputs)) each.removeAttribute('aria-invalid');
    if (fault.hidden) {
      this.dots ??= [];
      if (lanes.every((lane) => lane.quota)) replay();
      this.show(input);
    } else {
      (input ?? this.inputs.text).setAttribute('aria-invalid', 'true');
      if (this.quota) this.labels();
    }
    save();
    return fault.hidden;
  }
  /** Resets the counters and the responses. */
  begin() {
    core.lane(this.place, this.quota.text);
    const clients = SHAPES.map(() => ({ passed: [], answer: null, counts: [0, 0] }));
    Object.assign(this, { clients, bins: new Map(), width: range() / 60, denial: null });
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
    const number = Math.floor(t / this.width);
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
  /** Sets the controls to the quota, except the one in use. */
  show(used) {
    const quota = this.quota;
    const { text, algorithm, limit } = quota;
    const [period, step] = [nearest(PERIODS, quota.period / SECOND), nearest(STEPS, (quota.step ?? 0) / SECOND)];
    const values = { text, algorithm, limit, period, step, burst: quota.burst ?? 0, queue: quota.queue ?? 10, slices: quota.slices ?? 1 };
    for (const [input, value] of Object.entries(values)) if (this.inputs[input] !== used) this.inputs[input].value = value;
    this.labels();
  }
  labels() {
    const { limit, period, burst, step, queue, slices } = Object.fromEntries(Object.entries(this.inputs).map(([key, input]) => [key, Number(input.value)]));
    const words = { limit, period: span(PERIODS[period] * SECOND), burst: burst || 'as the limit', queue, slices,
      step: step ? `every ${span(STEPS[step] * SECOND)}` : 'evenly' };
    for (const [input, text] of Object.entries(words)) {
      this.inputs[input].parentElement.querySelector('.value').textContent = text;
      this.inputs[input].setAttribute('aria-valuetext', text);
    }
    for (const label of this.root.querySelectorAll('[data-for]')) label.hidden = label.dataset.for !== this.inputs.algorithm.value;
    const title = [...this.inputs.algorithm.options].find((option) => option.value === this.quota.algorithm).text;
    const { text, rust } = this.quota;
    const texts = { h2: `${'AB'[this.place]}: ${title.toLowerCase()}`, '.text': text, '.rust': rust, '.trailing': `the last ${span(this.quota.period)}` };
    for (const [selector, each] of Object.entries(texts)) this.find(selector).textContent = each;
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
  /** The counted units of the chosen client, by slice: [from, to, units, weight]. */
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
    if (algorithm === 'leaky_bucket') return `${passed.filter((t) => t > sim.now).length} of ${queue} places in the queue taken`;
    if (algorithm === 'fixed_window') return `${used}, the window ends in ${wait(period - (sim.now % period))}`;
    if (algorithm === 'sliding_window') {
      const leaving = this.counted().find(([, to, , weight]) => weight > 0 && to > sim.now - period);
      return `${used}, the oldest slice by ${leaving[3].toFixed(2)}`;
    }
    const first = passed.find((t) => t > sim.now - period);
    return first === undefined ? used : `${used}, the first is forgotten in ${wait(first + period - sim.now)}`;
  }
}
const level = (quota, resetAfter) => Math.max(0, quota.capacity - (resetAfter * quota.limit) / quota.period);
/** The time span of the strips: a minute, or three periods. */
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
function setRate(i, rate) {
  sim.rates[i] = rate;
  sim.queue = sim.queue.filter((arrival) => !(arrival.auto && arrival.client === i + 1));
  sim.next[i] = sim.now + flight() + (rate > 0 ? (SECOND / rate) * random() : 0);
  const row = $('clients').children[i + 1];
  row.children[1].value = nearest(RATES, rate);
  row.children[1].setAttribute('aria-valuetext', `${rate} a second`);
  row.children[2].textContent = `${rate} / s`;
  save();
}
function setSpeed(speed) {
  sim.speed = speed;
  document.querySelector(`[name=speed][value="${speed}"]`).checked = true;
  save();
}
function tell(number, story, last = false) {
  $('result').hidden = false;
  $('number').textContent = number;
  $('story').textContent = story;
  if (last) say(`${number} ${story}`);
}
/** Starts a scenario: these quotas with fresh counters, no other requests, and a time this far into a minute. */
function scene(a, b, second) {
  if (sim.paused) pause(false);
  const minute = 60 * SECOND;
  Object.assign(sim, { queue: [], past: [], rows: [], attack: null, now: (Math.floor(sim.now / minute) + 1) * minute + second * SECOND });
  [a, b].forEach((text, i) => lanes[i].set(text));
  SHAPES.forEach((_, i) => setRate(i, 0));
  setSpeed(1);
  tell('', 'Here they come …');
}
function windowEdge() {
  scene('5/60s', '5/60s fixed_window', 56.5);
  watch(1);
  const passed = [0, 0];
  for (let i = 0; i < 10; i++) {
    const at = sim.now + (i < 5 ? 1.5 : 5.5) * SECOND + (i % 5) * 60_000;
    arrive(at, 1, { heard: (place, answer) => {
      passed[place] += Number(answer.outcome !== 'denied');
      const over = i === 9 && place === 1;
      tell(passed.join(' : '), `Five at :58 and five at :02, where 5 a minute are allowed: A let ${passed[0]} pass, `
        + `B ${passed[1]}${over ? ', because a new window began in between' : ' so far'}.`, over);
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
    // As clients do: by the whole seconds of the field.
    const told = answer.headers.find(([field]) => field === 'retry-after')?.[1];
    (told ? sent : through)[place] += 1;
    if (told) arrive(sim.now + Number(told) * SECOND, 1, { lanes: [place], heard });
    const over = through[0] + through[1] === 40;
    tell(sent.join(' : '), `requests ${over ? '' : 'so far '}until twenty were through, all sent at once and again when Retry-After said: `
      + (over ? 'all are told the same moment, and come back at it. Headers::jitter spreads them.'
        : `A ${through[0]}, B ${through[1]} of 20 through in ${wait(sim.now - started)}.`), over);
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
      tell(tracked_keys.toLocaleString('en'), `clients are remembered by each table, made for 1,024; ${plural(Math.floor(fresh), 'fresh address')} came, `
        + `and ${evictions.toLocaleString('en')} are forgotten again. Client 3, over its limit before the flood, still passes ${again[0]} times on A `
        + `and ${again[1]} on B.`, i === 13 && place === 1);
    } });
  }
}
function attack() {
  const from = sim.now + flight();
  const [ok, all, attacker] = [[0, 0], [0, 0], [0, 0]];
  for (let i = 0; i < 1000; i++) arrive(from + i * 5000, 3);
  sim.attack = { until: from + 8 * SECOND, hear(client, place, passed) {
    (client > 2 ? attacker : ok)[place] += Number(passed);
    all[place] += Number(client < 3);
  }, tell(over) {
    tell(percent(ok[0] + ok[1], all[0] + all[1]), `of the bystanders' requests pass: ${ok[0]} of ${all[0]} on A, ${ok[1]} of ${all[1]} on B. `
      + `Of client 3's thousand ${attacker[0]} passed on A and ${attacker[1]} on B${over ? '' : ' so far'}.`, over);
  } };
  sim.attack.tell(false);
  say('Attack: 200 requests a second of client 3');
}

// Texts of the page, outside the drawings, updated several times a second
let spoken = 0;
let speech;
function say(text) {
  clearTimeout(speech);
  speech = setTimeout(() => {
    spoken = Date.now();
    $('live').textContent = text;
  }, Math.max(0, spoken + 2000 - Date.now()));
}
const shape = (client) => $('shapes').content.children[Math.min(client, 4) - 1].cloneNode(true);
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
    const bins = [...lane.bins].filter(([number]) => number > Math.floor(sim.now / lane.width) - 60);
    const shares = [1, 2, 3].map((client) => {
      const [ok, offered] = ['ok', 'offered'].map((kind) => bins.reduce((sum, [, bin]) => sum + bin[kind][client - 1], 0));
      const label = make('span', { className: 'hidden', textContent: `${name(client)}: ` });
      return make('td', { title: `${ok} of ${offered} of ${name(client)}` }, shape(client), label, percent(ok, offered));
    });
    lane.find('.shares tr').replaceChildren(...shares);
  }
  $('rows').replaceChildren(...sim.rows.map((row) => make('tr', {},
    make('td', { textContent: clock(row.t, 12) }), make('td', {}, shape(row.client), name(row.client)),
    ...row.cells.map((text) => make('td', { textContent: text })))));
  const over = sim.now > sim.attack?.until;
  sim.attack?.tell(over);
  if (over) sim.attack = null;
}

// Drawings. The stage: above, the state of the chosen client; below, the way of the requests.
const GATE = 0.53;
const MIDDLE = 158; // the height of the gate's opening
const rowOf = (client) => (client > 3 ? MIDDLE : 94 + 32 * client);

function drawLane(lane) {
  const pen = new Pen(lane.canvases[0]);
  const gate = Math.round(pen.w * GATE);
  const figure = { token_bucket: drawBucket, leaky_bucket: drawQueue }[lane.quota.algorithm] ?? drawTimes;
  figure(pen, lane, gate);
  pen.line([[0, 100.5], [pen.w, 100.5]], 'grid');
  // Clients, gate and service.
  for (const client of [1, 2, 3]) {
    if (client === sim.watch) pen.box(4, rowOf(client) - 13, 26, 26, 'tint', 'passed', 6);
    pen.shape(client, 17, rowOf(client), 7);
  }
  for (const [from, to] of [[110, MIDDLE - 13], [MIDDLE + 13, 192]]) pen.line([[gate, from], [gate, to]], 'edge', 3);
  const service = serviceWidth(pen);
  pen.box(pen.w - service - 4, MIDDLE - 26, service, 52, 'soft', 'edge', 6);
  const words = service < 66 ? ['app'] : ['your', 'service'];
  words.forEach((word, i) => pen.text(word, pen.w - service / 2 - 4, MIDDLE + (words.length > 1 ? -3 : 4) + 16 * i, { align: 'center', colour: 'strong' }));
  (still.matches ? drawCounts : drawDots)(pen, lane, gate);
  if (lane.denial) {
    pen.fade(1.6 - (sim.now - lane.denial.at) / (sim.speed * SECOND));
    const [x, align] = pen.w < NARROW ? [pen.w - 2, 'right'] : [gate + 10, 'left'];
    const words = pen.w < NARROW ? lane.denial.text.replace(', retry in', ' for') : lane.denial.text;
    pen.text(words, x, 206, { colour: 'limit', weight: 600, align });
    pen.fade(1);
  }
  drawStrip(lane);
}
const serviceWidth = (pen) => (pen.w < NARROW ? 32 : 66);
/** Replaces the dots with reduced motion. */
function drawCounts(pen, lane) {
  lane.dots = [];
  const words = pen.w < NARROW ? ['✓', '✕'] : ['passed,', 'refused'];
  lane.clients.forEach(({ counts }, i) => pen.text(`${counts[0]} ${words[0]} ${counts[1]} ${words[1]}`, 38, rowOf(i + 1) + 4, { colour: 'strong' }));
}
function drawDots(pen, lane, gate) {
  const unit = FLIGHT * sim.speed * SECOND;
  for (const arrival of sim.queue) {
    if (arrival.t > sim.now + unit || lane.dots.length > 120) break;
    if (arrival.drawn?.[lane.place] || !arrival.lanes.includes(lane.place)) continue;
    (arrival.drawn ??= [])[lane.place] = true;
    // A crowd is thinned out, or it would be a wall.
    if (lane.dots.length > 40 && arrival.t - lane.dots.at(-1).arrival.t < unit / 22) continue;
    lane.dots.push({ arrival, client: arrival.client });
  }
  const ease = (p) => p * p * (3 - 2 * p);
  let queued = 0;
  lane.dots = lane.dots.filter((dot) => {
    if (dot.at === undefined) {
      // Cancelled: its time has passed without a decision.
      if (dot.arrival.t < sim.now) return false;
      const p = Math.max(0, 1 - (dot.arrival.t - sim.now) / unit);
      const from = rowOf(dot.client);
      pen.shape(dot.client, 34 + (gate - 46) * p, from + (MIDDLE - from) * ease(Math.max(0, p * 1.6 - 0.6)));
      return true;
    }
    const p = (sim.now - (dot.ok ? dot.release : dot.at)) / unit;
    if (p < 0) {
      pen.shape(dot.client, Math.max(40, gate - 12 - 15 * queued++), MIDDLE);
      return true;
    }
    const [dx, dy] = dot.ok ? [(pen.w - serviceWidth(pen) - 10 - gate) * p, 0] : [-26 * p, 44 * p * p];
    pen.fade(dot.ok ? 4 * (1 - p) : 1 - p);
    pen.shape(dot.client, gate - 12 + dx, MIDDLE + dy);
    if (!dot.ok || dx > 20) pen.text(dot.ok ? '✓' : '✕', gate - 16 + dx, MIDDLE - 10 + dy, { colour: dot.ok ? 'passed' : 'limit', weight: 700 });
    pen.fade(1);
    return p < 1;
  });
}
function drawBucket(pen, lane, gate) {
  const { capacity, step, limit, period } = lane.quota;
  const { remaining, reset_after } = lane.peek();
  const tokens = step ? remaining : level(lane.quota, reset_after);
  const narrow = pen.w < NARROW;
  const [x, y, w, h] = narrow ? [6, 14, 44, 74] : [gate - 34, 14, 68, 74];
  const full = (tokens / capacity) * h;
  pen.box(x, y + h - full, w, full, 'passed');
  if (capacity <= 25) {
    for (let i = 1; i < capacity; i++) pen.line([[x, y + h - (i * h) / capacity], [x + w, y + h - (i * h) / capacity]], 'card', 1);
  }
  pen.line([[x, y - 4], [x, y + h], [x + w, y + h], [x + w, y - 4]], 'edge', 2);
  pen.text(tokens.toFixed(1), x + w + (narrow ? 8 : 14), y + 42, { size: 22, colour: 'strong', weight: 600 });
  pen.text(`of ${plural(capacity, 'token')}`, x + w + (narrow ? 8 : 14), y + 60);
  if (!narrow) pen.text(step ? `refilled every ${span(step)}` : `+1 every ${wait(period / limit)}`, x - 14, y + 42, { align: 'right' });
}
function drawQueue(pen, lane, gate) {
  const { queue, limit, period } = lane.quota;
  const waiting = lane.clients[sim.watch - 1].passed.filter((t) => t > sim.now).length;
  const size = Math.min(22, Math.max(4, (gate - 24) / Math.max(queue, 1) - 4));
  const shown = Math.min(queue, Math.floor((gate - 16) / (size + 4)));
  for (let i = 0; i < shown; i++) {
    const x = gate - 8 - (i + 1) * (size + 4);
    pen.box(x, 40, size, 26, null, 'edge', 3);
    if (i < waiting) pen.shape(sim.watch, x + size / 2, 53, Math.min(7, size / 2.4));
  }
  if (pen.w < NARROW) {
    pen.text(`${waiting} of ${plural(queue, 'place')}`, 4, 28, { colour: 'strong', weight: 600 });
    pen.text(`1 every ${wait(period / limit)}`, 4, 88);
    return;
  }
  pen.text(`${waiting} waiting`, gate + 12, 50, { size: 18, colour: 'strong', weight: 600 });
  pen.text(`one leaves every ${wait(period / limit)}`, gate + 12, 68);
  pen.text(queue ? `${plural(queue, 'place')} in the queue` : 'no queue', gate - 12, 30, { align: 'right' });
}
/** Windows, slices and logs are on a timeline that moves to the left; above the gate is now. */
function drawTimes(pen, lane, gate) {
  const { algorithm, capacity, period, slices } = lane.quota;
  const [base, height] = [82, 52];
  const scale = (gate - 10) / (1.12 * period);
  const x = (t) => gate + (t - sim.now) * scale;
  const right = pen.w - 6;
  const client = lane.clients[sim.watch - 1];
  const fixed = algorithm === 'fixed_window';
  const begins = fixed ? Math.floor(sim.now / period) * period : sim.now - period;
  pen.box(x(begins), base - height, gate - x(begins), height, 'tint');
  pen.line([[4, base - height], [right, base - height]], 'limit', 1.5, [6, 4]);
  if (algorithm === 'sliding_log') {
    for (const t of client.passed) {
      if (x(t) < 4) continue;
      const counts = t > sim.now - period;
      pen.line([[x(t), base], [x(t), base - (counts ? 40 : 22)]], counts ? 'passed' : 'offered', 3);
    }
  } else {
    for (const [from, to, units, weight] of lane.counted()) {
      const [left, edge] = [Math.max(4, x(from)), Math.min(x(to), right)];
      if (edge <= 4) continue;
      const top = (units / capacity) * height;
      if (units) pen.box(left + 1, base - top, Math.max(0, Math.min(edge, gate) - left - 1), top, weight > 0 ? 'passed' : 'offered');
      pen.line([[x(to), base + 4], [x(to), base - height - (fixed ? 12 : 4)]], fixed ? 'edge' : 'grid', fixed ? 2 : 1);
      const room = Math.min(edge, gate) - left;
      const words = weight > 0 && weight < 1 && room > 60 ? `${units} × ${weight.toFixed(2)}` : units;
      if (units && room > 14) pen.text(words, left + room / 2, base - top - 4, { align: 'center', colour: 'strong', weight: 600 });
    }
    const next = (Math.floor(sim.now / period) + 1) * period;
    if (fixed && x(next) < right - 62) pen.text(clock(next), x(next) + 5, base - 4);
    else if (!fixed && slices > 1) pen.text(plural(slices, 'slice'), right, 24, { align: 'right' });
  }
  pen.text(`limit ${capacity}`, right, base - height + 14, { align: 'right', colour: 'limit' });
  pen.line([[2, base], [right, base]], 'edge');
  pen.line([[gate, base + 6], [gate, 16]], 'strong', 1.5);
  pen.text('now', gate, 12, { align: 'center', colour: 'strong' });
  if (pen.w < NARROW) pen.text(fixed ? 'this window' : `the last ${span(period)}`, 4, 96);
  else pen.text(fixed ? 'this window' : `the last ${span(period)}`, gate - 4, 96, { align: 'right' });
  if (pen.w >= NARROW || fixed) pen.text(pen.w < NARROW ? '→' : 'time →', right, 96, { align: 'right' });
}

/** The strip: requests as bars, and the sum over the trailing period as a line with the limit. */
function drawStrip(lane) {
  const pen = new Pen(lane.canvases[1]);
  const [left, right] = [30, pen.w - 4];
  const { width } = lane;
  const from = sim.now - 60 * width;
  const i = sim.watch - 1;
  const x = (t) => left + ((t - from) / range()) * (right - left);
  const { limit, period } = lane.quota;
  const least = ((range() / SECOND) * 62) / pen.w;
  const gap = (GAPS.find((each) => each > least) ?? Math.ceil(least / DAY) * DAY) * SECOND;
  for (let t = Math.ceil(from / gap) * gap; t < sim.now; t += gap) {
    pen.line([[x(t), 4], [x(t), 112]], 'grid');
    const words = gap < DAY * SECOND ? clock(t, gap < 60 * SECOND ? 8 : 5) : date(t);
    if (x(t) > left + 16 && x(t) < right - 26) pen.text(words, x(t), 127, { align: 'center', size: 11 });
  }
  const bars = [...lane.bins].filter(([number]) => (number + 1) * width > from && number * width <= sim.now);
  // The highest bar. During an attack it is cut off, so that passed requests remain visible.
  const most = (kind) => Math.max(0, ...lanes.flatMap((each) => [...each.bins.values()].map((bin) => bin[kind][i])));
  const top = Math.max(4, Math.min(most('offered'), Math.max(10, 2 * most('passed'))));
  for (const [kind, inset] of [['offered', 0.5], ['passed', 1]]) {
    for (const [number, bin] of bars) {
      const height = 40 * Math.min(1, bin[kind][i] / top);
      const [a, b] = [Math.max(left, x(number * width)) + inset, Math.min(right, x((number + 1) * width)) - inset];
      if (height && b > a) pen.box(a, 46 - height, b - a, height, kind);
    }
  }
  pen.text(top, left - 6, 14, { align: 'right', size: 11 });
  pen.text(0, left - 6, 48, { align: 'right', size: 11 });
  const { passed } = lane.clients[i];
  let [sum, peak, coming, going] = [0, 0, 0, 0];
  const points = [];
  const add = (at) => {
    // Of many at one position the first, the highest and the last are visible.
    if (points.at(-3)?.[0] !== at) return points.push([at, sum]);
    points.at(-2)[1] = Math.max(points.at(-2)[1], sum);
    points.at(-1)[1] = sum;
  };
  for (;;) {
    const [comes, goes] = [passed[coming] ?? Infinity, (passed[going] ?? Infinity) + period];
    const t = Math.min(comes, goes);
    if (t > sim.now) break;
    const at = Math.round(2 * x(t)) / 2;
    if (t >= from) add(at);
    if (comes <= goes) [coming, sum] = [coming + 1, sum + 1]; else [going, sum] = [going + 1, sum - 1];
    if (t >= from) { add(at); peak = Math.max(peak, sum); } else points.splice(0, points.length, [left, sum]);
  }
  points.push([right, sum]);
  const y = (count) => 112 - (50 * count) / Math.max(limit * 1.25, peak);
  for (const height of [46.5, 112.5]) pen.line([[left, height], [right, height]], 'edge');
  pen.line(points.map(([at, count]) => [at, y(count)]), 'passed', 2);
  pen.line([[left, y(limit)], [right, y(limit)]], 'limit', 1.5, [6, 4]);
  pen.text(limit, left - 6, y(limit) + 4, { align: 'right', size: 11, colour: 'limit' });
  if (peak > limit * 1.2) pen.text(peak, left - 6, y(peak) + 8, { align: 'right', size: 11, colour: 'passed' });
  pen.text(0, left - 6, 114, { align: 'right', size: 11 });
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', readPalette);

const past = { frame: 0, words: 0, drawing: 0 };
function frame(ms) {
  // A page in the background pauses, and continues from there.
  if (!sim.paused) step(Math.min(0.25, (ms - (past.frame || ms)) / 1000) * sim.speed);
  past.frame = ms;
  const due = (what, after) => ms - past[what] > after && Boolean(past[what] = ms);
  if (due('words', 250)) refresh();
  if (due('drawing', still.matches ? 500 : 0)) lanes.forEach(drawLane);
  requestAnimationFrame(frame);
}

// Settings in the address
let saved;
function save() {
  if (lanes.length < 2 || !lanes[1].quota) return;
  const [a, b] = lanes.map((lane) => lane.quota.text);
  saved = `#${new URLSearchParams({ a, b, r: sim.rates.join(), w: sim.watch, x: sim.speed })}`;
  history.replaceState(null, '', saved);
}
function load(settings) {
  const { a, b, r, w, x } = { ...DEFAULTS, ...settings };
  const one = (of, text, other) => (of.includes(Number(text)) ? Number(text) : other);
  Object.assign(sim, { queue: [], past: [], rows: [], attack: null, seed: 1, speed: one([1, 10, 60], x, 1), watch: one([1, 2, 3], w, 3) });
  [a, b].forEach((text, i) => {
    if (lanes[i].set(text)) return;
    const { textContent } = lanes[i].find('.fault');
    lanes[i].quota ??= (lanes[i].set(i ? DEFAULTS.b : DEFAULTS.a), lanes[i].quota);
    Object.assign(lanes[i].find('.fault'), { textContent, hidden: false });
  });
  const rates = SHAPES.map((_, i) => Math.min(20, Math.max(0, Number(String(r).split(',')[i]) || 0)));
  const total = rates.reduce((sum, rate) => sum + rate);
  // A full strip, or the end of one, from the start: its requests are sent in the past.
  const seconds = total && Math.min(range() / SECOND, 20_000 / total);
  sim.now = START - Math.round(seconds * SECOND);
  rates.forEach((rate, i) => setRate(i, rate));
  for (let i = 0; i < 1000; i++) step(seconds / 1000);
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
    rate.addEventListener('input', () => setRate(i, RATES[rate.value]));
    return make('div', {}, make('label', {}, radio, shape(i + 1), `Client ${i + 1}`), rate, make('span', { className: 'value' }));
  }));
  readPalette();
  lanes.push(...BOTH.map((place) => new Lane(place)));
  $('answers').open = !matchMedia('(max-width: 1179px)').matches;
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
  // For tests, and for the console.
  globalThis.playground = { core, sim, lanes, step, refresh, draw: () => lanes.forEach(drawLane) };
  requestAnimationFrame(frame);
}
start().catch((error) => {
  $('broken').hidden = false;
  $('broken').textContent = `This page cannot run here: ${error.message}`;
});

// The stream has an event each second; the first has the last five minutes. Nothing is kept but what is shown.

const SECONDS = 300;
const KINDS = ['requests', 'denied', 'passed_anyway'];
const COLUMN = 4; // pixels: as many seconds as fit are one bar
const RETRIES = [2, 4, 8, 16, 30]; // seconds
const PAUSE = 30; // seconds without a denial after which the next one is a new beginning
const QUIET = 2000; // milliseconds between two announcements

const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat('en');
// Neither 0 nor 100 stands for a number near it.
const digits = (part, rest) => (part && rest && Math.min(part, rest) < (part + rest) / 100 ? 2 : 0);
const percent = (part, all) => (all ? `${((100 * part) / all).toFixed(digits(part, all - part))}\u00a0%` : '–');
const milliseconds = (seconds) => `${(1000 * seconds).toFixed(seconds < 0.01 ? 2 : 0)}\u00a0ms`;

const refused = (counts) => Math.max(0, counts.denied - counts.passed_anyway);
const denied = (counts) => number.format(refused(counts)) + (counts.passed_anyway ? ` + ${number.format(counts.passed_anyway)} passed` : '');

const histories = new Map();
const page = { token: '', at: 0, missed: 0, failures: 0, stop: null, announced: 0, timer: 0, names: '' };

function make(tag, attributes = {}, ...children) {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...children);
  return element;
}

function cell(textContent, label) {
  const td = make('td', { textContent });
  if (label) td.dataset.label = label;
  return td;
}

function duration(seconds) {
  const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit));
  if (days) return `${days} d ${hours % 24} h`;
  if (hours) return `${hours} h ${minutes % 60} min`;
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

/** Announces the state, at most every two seconds unless it is a fault. */
function announce(text, isBad = false) {
  const now = Date.now();
  if (!isBad && now - page.announced < QUIET) return;
  page.announced = now;
  const summary = $('summary');
  summary.classList.toggle('bad', isBad);
  if (summary.textContent !== text) summary.textContent = text;
}

/** Adds the newest second to each history. Seconds that were missed stay empty. */
function remember(event) {
  const gap = page.at ? event.at - page.at : 1;
  page.missed = Math.max(0, gap - 1);
  page.at = event.at;
  const names = new Set();
  for (const limit of event.limits) {
    names.add(limit.name);
    if (limit.history) {
      histories.set(limit.name, limit.history);
      continue;
    }
    const empty = () => Object.fromEntries(KINDS.map((kind) => [kind, new Array(SECONDS).fill(0)]));
    const history = histories.get(limit.name) ?? empty();
    for (const kind of KINDS) {
      history[kind].push(...new Array(Math.min(page.missed, SECONDS)).fill(0), limit.now[kind]);
      history[kind].splice(0, history[kind].length - SECONDS);
    }
    histories.set(limit.name, history);
  }
  for (const name of histories.keys()) if (!names.has(name)) histories.delete(name);
}

function drawStrip(canvas, history) {
  const pen = new Pen(canvas);
  if (!pen.w) return;
  const columns = Math.max(1, Math.min(SECONDS, Math.floor(pen.w / COLUMN)));
  const each = SECONDS / columns;
  const width = pen.w / columns;
  const bars = [];
  for (let column = 0; column < columns; column++) {
    const [from, to] = [Math.round(column * each), Math.round((column + 1) * each)];
    const most = (kind) => Math.max(0, ...history[kind].slice(from, to));
    bars.push(Object.fromEntries(KINDS.map((kind) => [kind, most(kind)])));
  }
  const top = Math.max(1, ...bars.map((bar) => bar.requests));
  const [base, room] = [pen.h - 1, pen.h - 8];
  const height = (count) => (count / top) * room;
  bars.forEach((bar, column) => {
    const x = column * width;
    let y = base;
    const layers = [[Math.max(0, bar.requests - bar.denied), 'passed'], [bar.passed_anyway, 'tint', 'passed'], [refused(bar), 'limit']];
    for (const [count, fill, stroke] of layers) {
      if (!count) continue;
      const h = Math.max(1, height(count));
      y -= h;
      pen.box(x, y, Math.max(1, width - 1), h, fill, stroke);
    }
    if (refused(bar)) {
      for (const [a, b] of [[0, 4], [4, 0]]) pen.line([[x - 0.5, a], [x + width - 0.5, b]], 'limit', 1);
    }
  });
  pen.line([[0, pen.h - 0.5], [pen.w, pen.h - 0.5]], 'grid');
}

function showState(event) {
  const { rules, store } = event;
  const entries = [['Running for', duration(event.uptime)], ['Rules', number.format(rules.number)]];
  if (rules.loaded_at) entries.push(['Rules read', new Date(rules.loaded_at * 1000).toLocaleTimeString()]);
  entries.push(['Errors in the rule files', rules.fault ?? 'none', rules.fault]);
  const off = rules.enabled ? rules.switched_off.join(', ') : 'all limits';
  entries.push(['Switched off', off || 'nothing', off]);
  entries.push(['Store', `${store.backend}, ${store.up ? 'up' : 'down'}`, !store.up]);
  if (store.breaker_open !== undefined) {
    entries.push(['Circuit to the store', store.breaker_open ? 'open' : 'closed', store.breaker_open]);
    const { p50, p99 } = store.call_seconds;
    if (p50) entries.push(['Calls of the store', `${milliseconds(p50)}, 99 % within ${milliseconds(p99)}`]);
    entries.push(['Decisions without the store', `${number.format(store.decisions_without_it)} a second`, store.decisions_without_it]);
  }
  for (const { name, used, most } of event.rooms) {
    entries.push([`Open ${name}`, `${number.format(used)} of ${number.format(most)}`, used >= most]);
  }
  $('state').replaceChildren(...entries.map(([name, value, isBad]) =>
    make('div', {}, make('dt', { textContent: name }), make('dd', { textContent: value, className: isBad ? 'bad' : '' }))));
  $('version').textContent = event.version;
}

/** The rows are made anew when limits come, go or change places; else only their numbers change. */
function showLimits(limits) {
  const body = $('limits').tBodies[0];
  const names = JSON.stringify(limits.map(({ name }) => name));
  if (names !== page.names) {
    page.names = names;
    body.replaceChildren(...limits.map(({ name }) => make('tr', {}, cell(name),
      make('td', { className: 'strip' }, make('canvas')),
      cell('', 'Requests/s'), cell('', 'Denied/s'), cell('', 'Requests, 1 min'), cell('', 'Denied, 1 min'), cell('', 'Share denied'), cell('', 'Least left'))));
    body.querySelectorAll('canvas').forEach((canvas) => canvas.setAttribute('aria-hidden', 'true'));
  }
  limits.forEach((limit, row) => {
    const { now, minute } = limit;
    const tr = body.rows[row];
    tr.className = refused(minute) ? 'denies' : '';
    const least = limit.least_left === null ? `${percent(minute.near, minute.requests)} near` : percent(limit.least_left * 1000, 1000);
    const texts = [number.format(now.requests), denied(now), number.format(minute.requests), denied(minute)];
    [...texts, percent(refused(minute), minute.requests), minute.requests ? least : '–'].forEach((text, at) => {
      tr.cells[at + 2].textContent = text;
    });
    drawStrip(tr.querySelector('canvas'), histories.get(limit.name));
  });
  $('no-limits').hidden = limits.length > 0;
  $('limits').hidden = limits.length === 0;
}

function showKeys(event) {
  $('keys-note').textContent = event.keys_are_shown
    ? 'Of the last five to ten minutes. Choose a key to see its limits.'
    : 'Of the last five to ten minutes, as digests. Choose one to see its limits.';
  const body = $('keys').tBodies[0];
  // A button that has the focus stays.
  if (body.contains(document.activeElement)) return;
  body.replaceChildren(...event.keys.map(({ key, limit, denied, error, passed_anyway: hasPassed }) => {
    const shown = make('button', { textContent: key, onclick: () => showKey(limit, key) });
    const count = `${number.format(denied)}${error ? ` (at most ${number.format(error)} fewer)` : ''}${hasPassed ? ', passed anyway' : ''}`;
    return make('tr', {}, make('td', {}, shown), cell(limit, 'Limit'), cell(count, 'Denied'));
  }));
  $('keys').hidden = event.keys.length === 0;
  if (!event.keys.length) $('keys-note').textContent = 'No key was denied in the last five minutes.';
}

async function showKey(rule, key) {
  const output = $('key');
  output.hidden = false;
  try {
    const response = await ask(`/v1/keys?${new URLSearchParams({ rule, key })}`);
    const answer = await response.json();
    const lines = (answer.limits ?? []).map(({ policy, limit, remaining }) => `${policy}: ${remaining} of ${limit} left`);
    if (answer.blocked_for) lines.push(`blocked for ${number.format(Math.ceil(answer.blocked_for))} s`);
    output.textContent = [key, ...(lines.length ? lines : [answer.error ?? JSON.stringify(answer)])].join('\n');
  } catch (error) {
    output.textContent = `${key}\n${error.message}`;
  }
  output.focus();
}

/** The seconds since the first denial without such a pause after it; at most the length of the history. */
function deniedFor(history) {
  let first = SECONDS;
  for (let at = SECONDS - 1; at >= 0 && first - at <= PAUSE; at--) {
    if (history.denied[at] > history.passed_anyway[at]) first = at;
  }
  return SECONDS - first;
}

function summary(event) {
  const denying = event.limits.filter(({ minute }) => refused(minute));
  if (!denying.length) {
    const requests = event.limits.reduce((sum, { now }) => sum + now.requests, 0);
    return `Nothing was denied in the last minute; ${number.format(requests)} decisions a second.`;
  }
  const [{ name, minute }] = denying;
  const seconds = deniedFor(histories.get(name));
  const since = seconds ? `, for ${seconds < SECONDS ? duration(seconds) : 'five minutes or more'}` : '';
  const key = event.keys.find(({ limit }) => limit === name);
  const whom = key ? ` Most often ${key.key}.` : '';
  const others = denying.length > 1 ? ` ${denying.length - 1} more denied, too.` : '';
  const share = percent(refused(minute), minute.requests);
  return `${name} denied ${number.format(refused(minute))} of ${number.format(minute.requests)} requests in the last minute (${share})${since}.${whom}${others}`;
}

function show(event) {
  remember(event);
  showState(event);
  showLimits(event.limits);
  showKeys(event);
  $('summary').classList.toggle('denies', event.limits.some(({ minute }) => refused(minute)));
  const missed = page.missed ? ` This page missed ${page.missed} s.` : '';
  announce(summary(event) + missed);
}

function ask(path, signal) {
  const headers = page.token ? { Authorization: `Bearer ${page.token}` } : {};
  return fetch(path, { headers, signal, cache: 'no-store' });
}

async function follow(signal) {
  const response = await ask('/v1/live', signal);
  if (response.status === 401) {
    $('access').hidden = false;
    announce(page.token ? 'The service did not accept this token.' : 'The service needs its token.', true);
    $('token').focus();
    return false;
  }
  if (!response.ok) throw new Error((await response.json()).error);
  $('access').hidden = true;
  page.at = 0;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error('The service ended the stream');
    const events = (text + value).split('\n\n');
    text = events.pop();
    const newest = events.filter((event) => event.startsWith('data: '));
    for (const event of newest) show(JSON.parse(event.slice(6)));
    if (newest.length) page.failures = 0;
  }
}

async function connect() {
  clearTimeout(page.timer);
  page.stop?.abort();
  const stop = new AbortController();
  page.stop = stop;
  try {
    await follow(stop.signal);
  } catch (error) {
    if (stop.signal.aborted) return;
    const seconds = RETRIES[Math.min(page.failures++, RETRIES.length - 1)];
    announce(`${error.message}. Trying again in ${seconds} s.`, true);
    page.timer = setTimeout(connect, seconds * 1000);
  }
}

$('access').addEventListener('submit', (event) => {
  event.preventDefault();
  page.token = $('token').value.trim();
  $('token').value = '';
  connect();
});
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) return connect();
  clearTimeout(page.timer);
  page.stop?.abort();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', readPalette);
$('instance').textContent = location.host;
readPalette();
connect();

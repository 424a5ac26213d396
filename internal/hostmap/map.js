// The picture needs none of this: it only answers faster than the browser's own hover, and filters.
(() => {
  const tip = document.createElement('div');
  tip.className = 'tip';
  tip.hidden = true;
  document.body.append(tip);
  for (const e of document.querySelectorAll('[title]')) {
    e.dataset.tip = e.title;
    e.setAttribute('aria-label', e.title);
    e.removeAttribute('title');
  }
  const show = (e) => {
    const from = e.target.closest('[data-tip]');
    tip.hidden = !from;
    if (!from) return;
    tip.textContent = from.dataset.tip;
    const r = from.getBoundingClientRect();
    const below = r.bottom + 8 + tip.offsetHeight < innerHeight;
    tip.style.left = Math.max(8, Math.min(r.left, innerWidth - tip.offsetWidth - 12)) + 'px';
    tip.style.top = Math.max(8, below ? r.bottom + 8 : r.top - 8 - tip.offsetHeight) + 'px';
  };
  document.addEventListener('mouseover', show);
  document.addEventListener('focusin', show);
  document.addEventListener('keydown', (e) => { if (e.key === 'Escape') tip.hidden = true; });

  const box = document.getElementById('filter');
  const found = document.getElementById('found');
  const all = [...document.querySelectorAll('.port')].map((e) => [e, e.dataset.tip.toLowerCase()]);
  const rows = [...document.querySelectorAll('#ports tbody tr')].map((e) => [e, e.textContent.toLowerCase()]);
  box.closest('form').hidden = false;
  box.closest('form').addEventListener('submit', (e) => e.preventDefault());
  box.addEventListener('input', () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (text) => words.every((w) => text.includes(w));
    let n = 0;
    for (const [e, text] of all) {
      const yes = matches(text);
      n += yes;
      e.classList.toggle('faded', !yes);
    }
    for (const [e, text] of rows) e.hidden = !matches(text);
    found.textContent = words.length ? n + ' of ' + all.length : '';
  });
  addEventListener('hashchange', open);
  open();
  function open() {
    const row = document.getElementById(location.hash.slice(1));
    const d = row && row.closest('details');
    if (d && !d.open) { d.open = true; row.scrollIntoView({ block: 'center' }); }
  }
})();

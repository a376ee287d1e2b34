(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  document.documentElement.classList.add('js');

  // Tables: a click on a heading sorts, a second one turns the order around. What has no number stays last.
  for (const table of all('table.sortable')) {
    const body = table.tBodies[0], heads = all('thead th', table);
    const key = (row, column) => row.cells[column].dataset.v;
    const sort = (column, falling) => {
      const number = heads[column].dataset.kind === 'number';
      const order = (a, b) => number ? a - b : a.localeCompare(b, 'en', { numeric: true });
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [key(a, column), key(b, column)];
        if (x === '' || y === '') return (x === '') - (y === '');
        return falling ? order(y, x) : order(x, y);
      });
      body.append(...rows);
      heads.forEach((h, n) => n === column ? h.setAttribute('aria-sort', falling ? 'descending' : 'ascending') : h.removeAttribute('aria-sort'));
    };
    const choice = document.createElement('select');
    heads.forEach((head, column) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener('click', () => sort(column, head.getAttribute('aria-sort') === 'ascending'));
      choice.append(new Option(head.textContent, column));
    });
    choice.addEventListener('change', () => sort(+choice.value, false));
    const label = document.createElement('label');
    label.className = 'sort';
    label.append('Sort by ', choice);
    table.closest('.scroll').before(label);
  }

  // Curves: switched on and off in the legend, for all pictures of the page; thicker where the legend is pointed at.
  const marks = kind => all(`.run[data-kind="${kind}"]`);
  for (const item of all('.legend li[data-kind]')) {
    const kind = item.dataset.kind, label = document.createElement('label'), box = document.createElement('input');
    box.type = 'checkbox';
    box.checked = true;
    label.append(box, ...item.childNodes);
    item.append(label);
    box.addEventListener('change', () => {
      marks(kind).forEach(mark => mark.classList.toggle('off', !box.checked));
      all(`.legend li[data-kind="${kind}"] input`).forEach(other => { other.checked = box.checked; });
    });
    item.addEventListener('pointerenter', () => marks(kind).forEach(mark => mark.classList.add('near')));
    item.addEventListener('pointerleave', () => marks(kind).forEach(mark => mark.classList.remove('near')));
  }

  // Axes: one picture at a time.
  for (const group of all('.all')) {
    const figures = all('figure.losses', group), tabs = document.createElement('div');
    tabs.className = 'tabs';
    const show = chosen => figures.forEach((figure, n) => {
      figure.hidden = n !== chosen;
      tabs.children[n].setAttribute('aria-pressed', n === chosen);
    });
    figures.forEach((figure, n) => {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = figure.dataset.name;
      button.addEventListener('click', () => show(n));
      tabs.append(button);
    });
    if (figures.length > 1) {
      group.before(tabs);
      show(0);
    }
  }

  // On paper everything is open but what pictures say as well.
  addEventListener('beforeprint', () => all('details:not(.more)').forEach(d => { d.dataset.was = d.open; d.open = true; }));
  addEventListener('afterprint', () => all('details:not(.more)').forEach(d => { d.open = d.dataset.was === 'true'; }));
})();

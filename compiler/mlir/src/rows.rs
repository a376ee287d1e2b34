//! Fused map and row-reduction kernels.
//!
//! Takes a [`Rows`] spec; emits, for each row, one sweep over the columns per reduction phase. A sweep
//! recomputes the element nodes it needs from the operands (the row is in the first-level cache by
//! then), in vectors of the 16 virtual lanes that [`ReduceOp`] fixes, with a masked tail. Per-row and
//! uniform nodes are scalars, spread over a vector where a sweep needs them. All element stores belong
//! to the last sweep, so an output may overwrite an input that earlier sweeps read.
//!
//! Kernels in which rows do not matter ([`flat`]) run over the elements of their rows as one long row.

use crate::access::{
    Columns, OperandRow, Position, RowAt, column_numbers, load_columns, load_scalar, operand_row,
    store_columns,
};
use crate::body::{Lowered, Values, binary};
use crate::emit::{Elem, Emitter, Type, Val};
use odec_program::DType;
use odec_program::eval::LANES;
use odec_program::expr::{Access, BinaryOp, ColMap, Expr, Level, ReduceOp, RowMap, UnaryOp};
use odec_program::kernel::Rows;

/// Lanes of every vector here: the virtual lanes of reductions, whatever the target's registers hold.
const WIDTH: u64 = LANES as u64;

/// Emits the kernel.
///
/// # Errors
/// What the spec asks for and no kernel can do.
pub(crate) fn emit(e: &mut Emitter, kernel: &Rows) -> Result<(), String> {
    check(kernel)?;
    let mut kernel = kernel.clone();
    if kernel.cols == 1 {
        // With a single column, "one per row" is an element each.
        for node in &mut kernel.body.nodes {
            if let Expr::Load { access, .. } = node {
                single_column(access);
            }
        }
        kernel
            .stores
            .iter_mut()
            .for_each(|s| single_column(&mut s.access));
    }
    let low = Lowered::new(&kernel.body, kernel.dtype);
    let rows = RowsEmitter {
        kernel: &kernel,
        low,
    };
    if flat(&kernel) {
        rows.flat(e)
    } else {
        rows.by_row(e)
    }
    Ok(())
}

fn single_column(access: &mut Access) {
    if access.row == RowMap::Row && access.stride == 1 {
        access.col = ColMap::Col;
    }
}

fn check(kernel: &Rows) -> Result<(), String> {
    let levels = kernel.body.levels();
    for s in &kernel.stores {
        let per_row = s.access.col == ColMap::Zero;
        if s.access.row != RowMap::Row || !(per_row || s.access.col == ColMap::Col) {
            return Err(format!(
                "output {} is written under {:?}",
                s.operand, s.access
            ));
        }
        if per_row && kernel.cols > 1 && levels[s.value.0 as usize] >= Level::Col {
            return Err(format!(
                "output {} has one element per row, its value one per column",
                s.operand
            ));
        }
    }
    let rounds = |n: &Expr| matches!(n, Expr::Unary(UnaryOp::Bf16, _));
    if kernel.dtype != DType::F32
        && (kernel.operands.contains(&DType::Bf16) || kernel.body.nodes.iter().any(rounds))
    {
        return Err("only f32 kernels round to bf16".into());
    }
    if kernel.body.nodes.contains(&Expr::Acc) {
        return Err("only epilogues of contractions have an accumulator".into());
    }
    Ok(())
}

/// Whether the kernel computes every element from the same element of its operands and from scalars only.
fn flat(kernel: &Rows) -> bool {
    let full = Access::full(kernel.cols);
    let stores = kernel.stores.iter().all(|s| s.access == full);
    let nodes = kernel.body.nodes.iter().all(|n| match n {
        Expr::Load { access, .. } => {
            *access == full || (access.row == RowMap::Zero && access.col == ColMap::Zero)
        }
        Expr::RowIndex | Expr::ColIndex | Expr::Reduce(..) => false,
        _ => true,
    });
    stores && nodes
}

struct RowsEmitter<'a> {
    kernel: &'a Rows,
    low: Lowered,
}

/// Where the operands' rows begin, for one row of the domain.
struct Row {
    bases: Vec<((u32, RowMap, u64), OperandRow)>,
    /// Values of uniform and per-row nodes.
    scalars: Values,
}

impl Row {
    fn base(&self, operand: u32, access: Access) -> OperandRow {
        let key = (operand, access.row, access.stride);
        let found = self.bases.iter().find(|b| b.0 == key);
        found.expect("every access of the kernel has a base").1
    }
}

impl RowsEmitter<'_> {
    fn elem(&self, operand: u32) -> Elem {
        Elem::of(self.kernel.operands[operand as usize])
    }

    /// The nodes that stores use, all of them.
    fn roots(&self) -> Vec<usize> {
        self.kernel
            .stores
            .iter()
            .map(|s| self.low.node(s.value))
            .collect()
    }

    fn is_scalar(&self, i: usize) -> bool {
        self.low.levels[i] < Level::Col
    }

    /// Whether a vector node that uses the node needs it in every lane of a vector.
    fn is_spread(&self, i: usize) -> bool {
        self.is_scalar(i) && !matches!(self.low.body.nodes[i], Expr::Const(_))
    }

    /// Loads the pointers of the operands in use.
    fn pointers(&self, e: &mut Emitter) -> Vec<Option<Val>> {
        let mut used = vec![false; self.kernel.operands.len()];
        for node in &self.low.body.nodes {
            if let Expr::Load { operand, .. } = node {
                used[*operand as usize] = true;
            }
        }
        self.kernel
            .stores
            .iter()
            .for_each(|s| used[s.operand as usize] = true);
        (0..used.len())
            .map(|n| used[n].then(|| e.operand(n as u64)))
            .collect()
    }

    /// Emits the needed nodes of the given level and phase as scalars.
    fn scalars(&self, e: &mut Emitter, level: Level, phase: u32, row: &mut Row) {
        let needed = self.low.needed(&self.roots());
        let marks: Vec<bool> = (0..needed.len())
            .map(|i| {
                let reduction = matches!(self.low.body.nodes[i], Expr::Reduce(..));
                needed[i]
                    && !reduction
                    && self.low.levels[i] == level
                    && self.low.phases[i] == phase
            })
            .collect();
        let mut values = std::mem::take(&mut row.scalars);
        let ty = e.scalar();
        self.low
            .emit(e, &marks, ty, &mut values, |e, node| match *node {
                Expr::Uniform(n) => e.coeff(n as u64),
                Expr::Load { operand, access } => {
                    let from = row.base(operand, access);
                    let x = load_scalar(e, from.base, self.elem(operand));
                    from.or_zero(e, x)
                }
                _ => unreachable!("column numbers and accumulators are not scalars"),
            });
        row.scalars = values;
    }

    /// Emits the marked vector nodes for some columns.
    fn vectors(
        &self,
        e: &mut Emitter,
        marks: &[bool],
        row: &Row,
        cols: Columns,
        values: &mut Values,
    ) {
        let ty = Type::vector(e.elem, cols.lanes);
        self.low.emit(e, marks, ty, values, |e, node| match *node {
            Expr::Load { operand, access } => {
                let from = row.base(operand, access);
                let x = load_columns(e, from.base, self.elem(operand), access.col, cols);
                from.or_zero(e, x)
            }
            Expr::ColIndex => column_numbers(e, cols),
            _ => unreachable!("uniform and per-row nodes have values"),
        });
    }

    // --- flat kernels -----------------------------------------------------------------------------

    fn flat(&self, e: &mut Emitter) {
        let pointers = self.pointers(e);
        let mut row = Row {
            bases: vec![],
            scalars: self.low.no_values(),
        };
        for (operand, access) in self.accesses() {
            if let Some(p) = pointers[operand as usize] {
                let key = (operand, access.row, access.stride);
                row.bases.push((key, OperandRow::only(p)));
            }
        }
        self.scalars(e, Level::Uniform, 0, &mut row);
        let marks = self.low.needed_until(&self.roots(), |i| self.is_scalar(i));
        let splats = self.splats(e, &marks, &row.scalars, None);
        let cols = self.kernel.cols as i64;
        let (begin, end) = (e.begin(), e.end());
        let (begin, end) = (e.mul_int(begin, cols), e.mul_int(end, cols));
        let count = e.sub(end, begin);
        let whole = e.floor_to(count, WIDTH as i64);
        let whole_end = e.add(begin, whole);
        e.for_each(begin, whole_end, WIDTH as i64, |e, c| {
            let mut values = splats.clone();
            let cols = Columns::full(c, WIDTH);
            self.vectors(e, &marks, &row, cols, &mut values);
            self.store_elements(e, &row, cols, &values);
        });
        // The tail runs element by element: it is at most 15 long for a whole tile range.
        e.for_each(whole_end, end, 1, |e, c| {
            let mut values = row.scalars.clone();
            let ty = e.scalar();
            self.low
                .emit(e, &marks, ty, &mut values, |e, node| match *node {
                    Expr::Load { operand, access } => {
                        let elem = self.elem(operand);
                        let p = e.at(row.base(operand, access).base, c, elem);
                        load_scalar(e, p, elem)
                    }
                    _ => unreachable!("flat kernels have no other leaves"),
                });
            for s in &self.kernel.stores {
                let elem = self.elem(s.operand);
                let node = self.low.node(s.value);
                let value = values[node].expect("stored values are marked");
                let value = self.low.stored(e, node, value, elem);
                let p = e.at(row.base(s.operand, s.access).base, c, elem);
                e.store(value, p);
            }
        });
    }

    // --- kernels by row ---------------------------------------------------------------------------

    fn by_row(&self, e: &mut Emitter) {
        let pointers = self.pointers(e);
        let mut row = Row {
            bases: vec![],
            scalars: self.low.no_values(),
        };
        self.bases(e, &pointers, None, &mut row);
        self.scalars(e, Level::Uniform, 0, &mut row);
        let mut roots = self.elements();
        roots.extend(self.reductions().iter().map(|r| r.2));
        let marks = self.low.needed_until(&roots, |i| self.is_scalar(i));
        let splats = self.splats(e, &marks, &row.scalars, None);
        let (begin, end) = (e.begin(), e.end());
        let by_position = self.accesses().iter().any(|a| a.1.row.by_position());
        let counted = by_position.then(|| [e.dim(1), e.dim(0)]);
        let start: Vec<Val> = (counted.iter())
            .map(|[seq, _]| e.rem(begin, *seq))
            .collect();
        e.for_with(begin, end, 1, &start, |e, r, position| {
            let mut here = Row {
                bases: row.bases.clone(),
                scalars: row.scalars.clone(),
            };
            let position = counted.map(|[seq, rows]| Position {
                at: position[0],
                seq,
                rows,
            });
            let at = RowAt { row: r, position };
            self.bases(e, &pointers, Some(at), &mut here);
            let needed = self.low.needed(&self.roots());
            for (i, node) in self.low.body.nodes.iter().enumerate() {
                if needed[i] && *node == Expr::RowIndex {
                    here.scalars[i] = Some(e.convert(r, e.elem));
                }
            }
            self.one_row(e, here, splats.clone());
            (position.iter())
                .map(|Position { at, seq, .. }| {
                    let next = e.add_int(*at, 1);
                    let wraps = e.cmp(crate::emit::Cmp::Eq, next, *seq);
                    let zero = e.int(0);
                    e.select(wraps, zero, next)
                })
                .collect()
        });
    }

    /// Every access of the kernel, in order, once.
    fn accesses(&self) -> Vec<(u32, Access)> {
        let loads = self.low.body.nodes.iter().filter_map(|n| match n {
            Expr::Load { operand, access } => Some((*operand, *access)),
            _ => None,
        });
        loads
            .chain(self.kernel.stores.iter().map(|s| (s.operand, s.access)))
            .collect()
    }

    /// Adds the rows that operands are read and written at; without a row of the domain, those that are the same for all.
    fn bases(&self, e: &mut Emitter, pointers: &[Option<Val>], at: Option<RowAt>, row: &mut Row) {
        for (operand, access) in self.accesses() {
            let key = (operand, access.row, access.stride);
            let same = access.row == RowMap::Zero;
            if same != at.is_none() || row.bases.iter().any(|b| b.0 == key) {
                continue;
            }
            let pointer = pointers[operand as usize].expect("operands of accesses are loaded");
            let base = match at {
                None => OperandRow::only(pointer),
                Some(at) => operand_row(e, pointer, self.elem(operand), access, at),
            };
            row.bases.push((key, base));
        }
    }

    /// Every needed reduction: its node, how it combines, and the node it reduces.
    fn reductions(&self) -> Vec<(usize, ReduceOp, usize)> {
        let needed = self.low.needed(&self.roots());
        let nodes = self.low.body.nodes.iter().enumerate();
        nodes
            .filter_map(|(i, n)| match n {
                Expr::Reduce(op, a) if needed[i] => Some((i, *op, a.0 as usize)),
                _ => None,
            })
            .collect()
    }

    /// The nodes stored with one value per column.
    fn elements(&self) -> Vec<usize> {
        let stores = self
            .kernel
            .stores
            .iter()
            .filter(|s| s.access.col == ColMap::Col);
        stores.map(|s| self.low.node(s.value)).collect()
    }

    fn one_row(&self, e: &mut Emitter, mut row: Row, mut splats: Values) {
        let (reductions, elements) = (self.reductions(), self.elements());
        let mut sweeps = reductions
            .iter()
            .map(|r| self.low.phases[r.0])
            .max()
            .unwrap_or(0);
        if let Some(last) = elements.iter().map(|v| self.low.phases[*v]).max() {
            sweeps = sweeps.max(last + 1);
        }
        self.scalars(e, Level::Row, 0, &mut row);
        for phase in 0..sweeps {
            let now: Vec<_> = reductions
                .iter()
                .copied()
                .filter(|r| self.low.phases[r.0] == phase + 1)
                .collect();
            let mut roots: Vec<usize> = now.iter().map(|r| r.2).collect();
            let last = phase + 1 == sweeps;
            if last {
                roots.extend(&elements);
            }
            splats = self.sweep(e, &mut row, splats, &now, &roots, last);
            self.scalars(e, Level::Row, phase + 1, &mut row);
        }
        for s in self
            .kernel
            .stores
            .iter()
            .filter(|s| s.access.col == ColMap::Zero)
        {
            let node = self.low.node(s.value);
            let value = row.scalars[node].expect("per-row values are scalars");
            let value = self.low.stored(e, node, value, self.elem(s.operand));
            e.store(value, row.base(s.operand, s.access).base);
        }
    }

    /// One pass over the columns: reduces `reductions` into `row.scalars`, and writes the outputs when it is the last.
    /// Gives the vectors of the scalars it needed, for the next one.
    fn sweep(
        &self,
        e: &mut Emitter,
        row: &mut Row,
        splats: Values,
        reductions: &[(usize, ReduceOp, usize)],
        roots: &[usize],
        last: bool,
    ) -> Values {
        let marks = self.low.needed_until(roots, |i| self.is_scalar(i));
        let splats = self.splats(e, &marks, &row.scalars, Some(splats));
        let width = Type::vector(e.elem, WIDTH);
        let mut sums: Vec<Val> = reductions
            .iter()
            .map(|(_, op, _)| {
                e.float(
                    if *op == ReduceOp::Sum {
                        0.0
                    } else {
                        f64::NEG_INFINITY
                    },
                    width,
                )
            })
            .collect();
        let step = |e: &mut Emitter, cols: Columns, sums: &[Val], row: &Row| -> Vec<Val> {
            let mut values = splats.clone();
            self.vectors(e, &marks, row, cols, &mut values);
            let next = reductions.iter().zip(sums).map(|((_, op, a), sum)| {
                let value = values[*a].expect("reduced values are marked");
                let next = binary(e, combine(*op), *sum, value);
                if cols.count == cols.lanes {
                    return next;
                }
                let count = e.int(cols.count as i64);
                let mask = e.mask(count, cols.lanes);
                e.select(mask, next, *sum)
            });
            let next = next.collect();
            if last {
                self.store_elements(e, row, cols, &values);
            }
            next
        };
        let vectors = self.kernel.cols / WIDTH;
        let work = marks.iter().filter(|m| **m).count() as u64;
        let unroll = [4, 2]
            .into_iter()
            .find(|u| vectors.is_multiple_of(*u) && u * work <= 96)
            .unwrap_or(1);
        let (full, stride) = (vectors * WIDTH, unroll * WIDTH);
        let several = |e: &mut Emitter, c: Val, mut sums: Vec<Val>, row: &Row| {
            for u in 0..unroll {
                let c = e.add_int(c, (u * WIDTH) as i64);
                sums = step(e, Columns::full(c, WIDTH), &sums, row);
            }
            sums
        };
        let zero = e.int(0);
        if full == stride {
            sums = several(e, zero, sums, row);
        } else if full > 0 {
            let end = e.int(full as i64);
            sums = e.for_with(zero, end, stride as i64, &sums, |e, c, sums| {
                several(e, c, sums.to_vec(), row)
            });
        }
        if full < self.kernel.cols {
            let first = e.int(full as i64);
            let cols = Columns {
                first,
                lanes: WIDTH,
                count: self.kernel.cols - full,
            };
            sums = step(e, cols, &sums, row);
        }
        for ((node, op, _), sum) in reductions.iter().zip(sums) {
            row.scalars[*node] = Some(tree(e, *op, sum));
        }
        splats
    }

    /// Vectors of the marked scalars that have a value, added to those that are there already. Constants become
    /// vectors where they are used.
    fn splats(
        &self,
        e: &mut Emitter,
        marks: &[bool],
        scalars: &Values,
        known: Option<Values>,
    ) -> Values {
        let mut out = known.unwrap_or_else(|| self.low.no_values());
        for (i, out) in out.iter_mut().enumerate() {
            if let (true, true, None, Some(x)) = (marks[i], self.is_spread(i), *out, scalars[i]) {
                *out = Some(e.broadcast(x, WIDTH));
            }
        }
        out
    }

    fn store_elements(&self, e: &mut Emitter, row: &Row, cols: Columns, values: &Values) {
        for s in self
            .kernel
            .stores
            .iter()
            .filter(|s| s.access.col == ColMap::Col)
        {
            let (node, elem) = (self.low.node(s.value), self.elem(s.operand));
            let value = values[node].expect("stored values are marked");
            let value = self.low.stored(e, node, value, elem);
            store_columns(e, value, row.base(s.operand, s.access).base, elem, cols);
        }
    }
}

fn combine(op: ReduceOp) -> BinaryOp {
    match op {
        ReduceOp::Sum => BinaryOp::Add,
        ReduceOp::Max => BinaryOp::Max,
    }
}

/// Combines lanes pairwise at distance 8, 4, 2, 1.
pub(crate) fn tree(e: &mut Emitter, op: ReduceOp, mut x: Val) -> Val {
    while x.ty.lanes > 1 {
        let half = x.ty.lanes / 2;
        let (near, far): (Vec<u32>, Vec<u32>) = ((0..half).collect(), (half..2 * half).collect());
        let (near, far) = (e.shuffle(x, x, &near), e.shuffle(x, x, &far));
        x = binary(e, combine(op), near, far);
    }
    e.extract(x, 0)
}

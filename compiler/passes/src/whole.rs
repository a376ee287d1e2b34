//! Updates of whole matrices as launches: what [`odec_program::optimizers::whole`] writes, in its places.
//!
//! Takes an area of parameters that one optimiser updates; adds launches for each matrix of each of them. Right-hand operands of products are
//! packed where the target packs them.

use super::launch_list::{BufferId, Launch, LaunchList, Placement};
use super::layout::{Area, ParamTable, matrices};
use super::lower::Tiling;
use super::spec::Specs;
use odec_program::kernel::{Contract, Extent, KernelSpec, Layout, Order, Pack};
use odec_program::manifest::Param;
use odec_program::optimizers::whole::{Part, Plan, Product, Step};
use odec_program::optimizers::{SLOTS, Whole, of_group};
use odec_program::{Coeff, Operand, Site, Size, Slot};

/// What is updated by an optimiser.
pub struct Wholes<'a> {
    pub table: &'a ParamTable,
    pub area: &'a Area,
    pub name: &'static str,
    pub update: &'a dyn Whole,
    /// Where gradients are; what they are multiplied by, and their norm.
    pub given: (Slot, BufferId, BufferId),
    pub tiling: Tiling,
}

/// The launches for an area.
pub fn update(code: &mut LaunchList, of: &Wholes) {
    let Area { start, end, .. } = *of.area;
    let params = of.table.params.iter();
    let mut specs = Specs::default();
    for p in params.filter(|p| (start..end).contains(&p.offset)) {
        let [count, rows, cols] = matrices(&p.path, &p.shape);
        for n in 0..count {
            let mut plan = Plan::new(of.table.real, [rows, cols], of.area.decays);
            of.update.update(&mut plan);
            Matrix {
                code: &mut *code,
                of,
                p,
                plan: &plan,
                specs: &mut specs,
                n,
                buffers: Vec::new(),
            }
            .launches();
        }
    }
}

/// One matrix of a parameter.
struct Matrix<'a> {
    code: &'a mut LaunchList,
    of: &'a Wholes<'a>,
    p: &'a Param,
    plan: &'a Plan,
    specs: &'a mut Specs,
    n: u64,
    buffers: Vec<(Part, BufferId)>,
}

impl Matrix<'_> {
    fn launches(mut self) {
        for step in &self.plan.steps {
            match step {
                Step::Rows(kernel, args, rows, coeffs) => {
                    let kernel = KernelSpec::Rows(kernel.clone());
                    self.launch(kernel, args, &[*rows, 1], coeffs);
                }
                Step::Columns(kernel, args, rows) => {
                    self.launch(KernelSpec::Columns(kernel.clone()), args, &[*rows, 1], &[]);
                }
                Step::Product(product) => self.product(product),
            }
        }
    }

    fn launch(&mut self, spec: KernelSpec, args: &[Part], dims: &[u64], coeffs: &[Coeff]) {
        let args = args.iter().map(|part| self.buffer(*part)).collect();
        self.push(spec, args, dims, coeffs);
    }

    fn push(&mut self, spec: KernelSpec, args: Vec<BufferId>, dims: &[u64], coeffs: &[Coeff]) {
        let mut coeffs = coeffs.to_vec();
        for c in &mut coeffs {
            if let Coeff::Named(name) = c {
                *name = of_group(name, self.of.area.group);
            }
        }
        let spec = self.specs.of(spec);
        self.code.launches.push(Launch {
            spec,
            args,
            dims: dims.iter().map(|n| Size::fixed(*n)).collect(),
            coeffs,
            site: Site::update(format!("{}.{}", self.of.name, self.p.path)).into(),
            guard: None,
            held: None,
        });
    }

    /// Where a part lies.
    fn buffer(&mut self, part: Part) -> BufferId {
        if let Some((_, found)) = self.buffers.iter().find(|(p, _)| *p == part) {
            return *found;
        }
        let (table, plan) = (self.of.table, self.plan);
        let (from, scale, norm) = self.of.given;
        let elements = plan.rows * plan.cols;
        let at = |slot, start: u64, elements: u64| {
            let offset = start + self.n * elements * table.real.bytes();
            (elements, Placement::Fixed(Operand::at(slot, offset)))
        };
        let (elements, home) = match part {
            Part::Scale => return scale,
            Part::Norm => return norm,
            Part::Parameter => at(Slot::Params, self.p.offset, elements),
            Part::Gradient => at(from, self.p.offset, elements),
            Part::State(n) => at(SLOTS[n], self.p.offset, elements),
            Part::Beside(n) => {
                let beside = self.of.update.beside([plan.rows, plan.cols]);
                let (end, numbers) = beside[n];
                let path = format!("{}{end}", self.p.path);
                let offset = table.find(&path).map(|p| p.offset);
                let offset = offset.expect("the table has what is kept beside a parameter");
                at(Slot::Params, offset, numbers)
            }
            Part::Made(n) => (plan.made[n], Placement::Arena),
        };
        let name = format!("{} {part:?}", self.p.path);
        let made = self
            .code
            .buffer(name, table.real, Size::fixed(elements), home);
        self.buffers.push((part, made));
        made
    }

    fn product(&mut self, p: &Product) {
        let real = self.of.table.real;
        let [m, n, k] = p.dims;
        let blocking = self.of.tiling.blocking;
        let [a, b] = [p.a, p.b].map(|(part, _)| self.buffer(part));
        let (right, layout) = match (self.of.tiling.packs, p.b.1) {
            (true, transposed) => {
                let nr = u64::from(blocking.nr);
                let size = Size::fixed(n.next_multiple_of(nr) * k);
                let name = format!("{} packed", self.p.path);
                let packed = self.code.buffer(name, real, size, Placement::Arena);
                let pack = Pack {
                    dtype: real,
                    from: real,
                    n: Extent::Static(n),
                    k: Extent::Static(k),
                    nr: blocking.nr,
                    transposed,
                    order: Order::Chain,
                    quantized: None,
                };
                self.push(KernelSpec::Pack(pack), vec![b, packed], &[n, k], &[]);
                (packed, Layout::Panels)
            }
            (false, false) => (b, Layout::Rows),
            (false, true) => (b, Layout::Columns),
        };
        let (epilogue, extras, coeffs) = p.epilogue.clone().map_or_else(
            || (None, Vec::new(), Vec::new()),
            |(epilogue, extras, coeffs)| (Some(epilogue), extras, coeffs),
        );
        let spec = Contract {
            a_transposed: p.a.1,
            layout,
            epilogue,
            ..Contract::new(real, [m, n, k].map(Extent::Static), blocking)
        };
        let extras = extras.into_iter().chain([p.into]);
        let extras: Vec<BufferId> = extras.map(|part| self.buffer(part)).collect();
        let args = [a, right].into_iter().chain(extras).collect();
        self.push(KernelSpec::Contract(spec), args, &p.dims, &coeffs);
    }
}

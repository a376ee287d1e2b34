//! A model small enough to write its program by hand: logits = embed[token] · headᵀ, trained by AdamW
//! with clipping. It uses every kernel kind but attention, and every slot.

use odec_program::expr::{BinaryOp, CmpOp, Expr, ReduceOp, UnaryOp};
use odec_program::kernel::*;
use odec_program::manifest::*;
use odec_program::optimizers::AdamW;
use odec_program::rng::Stream;
use odec_program::schedules::Cosine;
use odec_program::site::Sites;
use odec_program::*;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub const VOCAB: u64 = 256;
pub const WIDTH: u64 = 16;
pub const CONTEXT: u64 = 12;
pub const BATCH: u64 = 4;
/// Elements of each parameter, and so where the second starts.
const TABLE: u64 = VOCAB * WIDTH;

const ROWS: Size = Size {
    factor: 1,
    batch: 1,
    seq: 1,
    past: 0,
    recent: 0,
    source: 0,
};

/// Collects kernels once each, and instructions.
/// The site of a path outside of all steps.
pub fn at(path: &str) -> Site {
    Site {
        path: path.into(),
        ..Site::default()
    }
}

#[derive(Default)]
struct Maker {
    kernels: Vec<Kernel>,
    sites: Sites,
}

impl Maker {
    fn kernel(&mut self, spec: KernelSpec) -> u32 {
        let symbol = spec.symbol();
        let at = self.kernels.iter().position(|k| k.symbol == symbol);
        at.unwrap_or_else(|| {
            self.kernels.push(Kernel { symbol, spec });
            self.kernels.len() - 1
        }) as u32
    }

    fn instr(
        &mut self,
        site: &str,
        spec: KernelSpec,
        operands: &[(Slot, u64)],
        dims: &[Size],
        coeffs: &[Coeff],
    ) -> Instr {
        let operands = operands
            .iter()
            .map(|&(slot, offset)| Operand::at(slot, offset))
            .collect();
        Instr {
            kernel: self.kernel(spec),
            operands,
            dims: dims.to_vec(),
            coeffs: coeffs.to_vec(),
            site: self.sites.number(&at(site)),
            guard: None,
        }
    }
}

const BLOCKING: Blocking = Blocking {
    mr: 4,
    nr: 16,
    kc: 8,
    nc: 32,
};

fn rows(
    cols: u64,
    operands: &[DType],
    uniforms: u32,
    body: Body,
    stores: &[(u32, Access, ExprId)],
) -> KernelSpec {
    let store = |&(operand, access, value): &(u32, Access, ExprId)| Store {
        operand,
        access,
        value,
    };
    KernelSpec::Rows(Rows {
        dtype: DType::F32,
        cols,
        operands: operands.to_vec(),
        uniforms,
        body,
        stores: stores.iter().map(store).collect(),
    })
}

/// `out = Σ_r in(r) · uniform` over a column.
fn column_sum(uniform: bool) -> KernelSpec {
    let mut body = Body::default();
    let mut value = body.load(0, Access::PER_ROW);
    if uniform {
        let u = body.uniform(0);
        value = body.mul(value, u);
    }
    KernelSpec::Columns(Columns {
        dtype: DType::F32,
        cols: 1,
        operands: vec![DType::F32; 2],
        uniforms: u32::from(uniform),
        body,
        value,
        accumulate: false,
        parts: 1,
    })
}

fn pack(n: Extent, k: Extent, transposed: bool) -> KernelSpec {
    KernelSpec::Pack(Pack {
        dtype: DType::F32,
        from: DType::F32,
        n,
        k,
        nr: BLOCKING.nr,
        transposed,
        order: Order::Chain,
        quantized: None,
    })
}

fn contract(m: Extent, n: u64, k: Extent, a_transposed: bool) -> KernelSpec {
    KernelSpec::Contract(Contract {
        a_transposed,
        ..Contract::new(DType::F32, [m, Extent::Static(n), k], BLOCKING)
    })
}

/// Adds `log Σ exp` of operand 0 and the exponentials' shift to a body: (lse, per-element logit).
fn log_sum_exp(b: &mut Body) -> (ExprId, ExprId) {
    let x = b.load(0, Access::full(VOCAB));
    let max = b.reduce(ReduceOp::Max, x);
    let shifted = b.binary(BinaryOp::Sub, x, max);
    let e = b.unary(UnaryOp::Exp, shifted);
    let sum = b.reduce(ReduceOp::Sum, e);
    let log = b.unary(UnaryOp::Log, sum);
    (b.add(max, log), x)
}

/// logits, targets → loss of each row.
fn cross_entropy() -> KernelSpec {
    let mut b = Body::default();
    let (lse, x) = log_sum_exp(&mut b);
    let (target, column, zero) = (
        b.load(1, Access::PER_ROW),
        b.push(Expr::ColIndex),
        b.konst(0.0),
    );
    let picked = b.select(CmpOp::Eq, column, target, x, zero);
    let picked = b.reduce(ReduceOp::Sum, picked);
    let loss = b.binary(BinaryOp::Sub, lse, picked);
    rows(
        VOCAB,
        &[DType::F32, DType::I32, DType::F32],
        0,
        b,
        &[(2, Access::PER_ROW, loss)],
    )
}

/// logits, targets → d_logits (in place), (softmax − one-hot) · uniform.
fn cross_entropy_backward() -> KernelSpec {
    let mut b = Body::default();
    let (lse, x) = log_sum_exp(&mut b);
    let shifted = b.binary(BinaryOp::Sub, x, lse);
    let p = b.unary(UnaryOp::Exp, shifted);
    let (target, column) = (b.load(1, Access::PER_ROW), b.push(Expr::ColIndex));
    let (one, zero) = (b.konst(1.0), b.konst(0.0));
    let hot = b.select(CmpOp::Eq, column, target, one, zero);
    let d = b.binary(BinaryOp::Sub, p, hot);
    let u = b.uniform(0);
    let d = b.mul(d, u);
    rows(
        VOCAB,
        &[DType::F32, DType::I32, DType::F32],
        1,
        b,
        &[(2, Access::full(VOCAB), d)],
    )
}

fn zero_rows() -> KernelSpec {
    let mut b = Body::default();
    let zero = b.konst(0.0);
    rows(
        WIDTH,
        &[DType::F32],
        0,
        b,
        &[(0, Access::full(WIDTH), zero)],
    )
}

const LINE: u64 = 64;

fn squares() -> KernelSpec {
    let mut b = Body::default();
    let g = b.load(0, Access::full(LINE));
    let square = b.mul(g, g);
    let sum = b.reduce(ReduceOp::Sum, square);
    rows(LINE, &[DType::F32; 2], 0, b, &[(1, Access::PER_ROW, sum)])
}

/// Σ g² → norm, min(1, clip / norm).
fn clip_factor() -> KernelSpec {
    let mut b = Body::default();
    let sum = b.load(0, Access::PER_ROW);
    let norm = b.unary(UnaryOp::Sqrt, sum);
    let (clip, one, tiny) = (b.uniform(0), b.konst(1.0), b.konst(1e-6));
    let safe = b.add(norm, tiny);
    let ratio = b.binary(BinaryOp::Div, clip, safe);
    let factor = b.binary(BinaryOp::Min, one, ratio);
    rows(
        1,
        &[DType::F32; 3],
        1,
        b,
        &[(1, Access::PER_ROW, norm), (2, Access::PER_ROW, factor)],
    )
}

/// p, m, v (updated in place), g, factor; uniforms lr, bias1, bias2.
fn adamw(o: &AdamW) -> KernelSpec {
    let mut b = Body::default();
    let full = Access::full(LINE);
    let [p, m, v, g] = [0, 1, 2, 3].map(|n| b.load(n, full));
    let factor = b.load(4, Access::SCALAR);
    let [lr, bias1, bias2] = [0, 1, 2].map(|n| b.uniform(n));
    let g = b.mul(g, factor);
    let blend = |b: &mut Body, old, new, beta: f64| {
        let (keep, take) = (b.konst(beta), b.konst(1.0 - beta));
        let new = b.mul(take, new);
        b.fma(keep, old, new)
    };
    let m1 = blend(&mut b, m, g, o.betas.0);
    let square = b.mul(g, g);
    let v1 = blend(&mut b, v, square, o.betas.1);
    let (mh, vh) = (b.mul(m1, bias1), b.mul(v1, bias2));
    let (root, eps, decay) = (
        b.unary(UnaryOp::Sqrt, vh),
        b.konst(o.eps),
        b.konst(o.weight_decay),
    );
    let below = b.add(root, eps);
    let direction = b.binary(BinaryOp::Div, mh, below);
    let direction = b.fma(decay, p, direction);
    let step = b.mul(lr, direction);
    let p1 = b.binary(BinaryOp::Sub, p, step);
    rows(
        LINE,
        &[DType::F32; 5],
        3,
        b,
        &[(0, full, p1), (1, full, m1), (2, full, v1)],
    )
}

fn io(name: &str, dtype: DType, shape: &[Dim]) -> Io {
    Io {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
    }
}

/// The manifest of the tiny model.
pub fn manifest() -> Manifest {
    use Slot::*;
    let mut mk = Maker::default();
    let fixed = Size::fixed;
    let (v, w) = (Extent::Static(VOCAB), Extent::Static(WIDTH));
    let f = |elements: u64| (elements * 4).next_multiple_of(64);
    let tokens = io("tokens", DType::I32, &[Dim::Batch, Dim::Seq]);
    let targets = io("targets", DType::I32, &[Dim::Batch, Dim::Seq]);
    let loss = io("loss", DType::F32, &[]);
    let logits = io(
        "logits",
        DType::F32,
        &[Dim::Batch, Dim::Seq, Dim::Fixed(VOCAB)],
    );
    let (embed, head) = (0, TABLE * 4);
    let r = BATCH * CONTEXT;

    // The arena: gradients, x, packed head, logits, a row vector, d_x, packed x.
    let x = 2 * TABLE * 4;
    let packed = x + f(r * WIDTH);
    let scores = packed + f(TABLE.max(r * WIDTH));
    let per_row = scores + f(r * VOCAB);
    let d_x = per_row + f(r.max(2 * TABLE / LINE));
    let scalar = d_x + f(r * WIDTH);
    let arena_bytes = scalar + 64;

    let mut forward = |to: (Slot, u64)| {
        vec![
            mk.instr(
                "embed",
                KernelSpec::Gather(Gather {
                    dtype: DType::F32,
                    cols: WIDTH,
                }),
                &[(Input(0), 0), (Params, embed), (Arena, x)],
                &[ROWS, fixed(VOCAB)],
                &[],
            ),
            mk.instr(
                "head.pack",
                pack(v, w, true),
                &[(Params, head), (Arena, packed)],
                &[fixed(VOCAB), fixed(WIDTH)],
                &[],
            ),
            mk.instr(
                "head",
                contract(Extent::Dynamic, VOCAB, w, false),
                &[(Arena, x), (Arena, packed), to],
                &[ROWS, fixed(VOCAB), fixed(WIDTH)],
                &[],
            ),
        ]
    };
    let forward_instrs = forward((Output(0), 0));
    let mut loss_instrs = forward((Arena, scores));
    loss_instrs.push(mk.instr(
        "loss.rows",
        cross_entropy(),
        &[(Arena, scores), (Input(1), 0), (Arena, per_row)],
        &[ROWS, Size::ONE],
        &[],
    ));
    loss_instrs.push(mk.instr(
        "loss",
        column_sum(true),
        &[(Arena, per_row), (Output(0), 0)],
        &[ROWS, Size::ONE],
        &[Coeff::Inverse(ROWS)],
    ));
    let mut grad_instrs = loss_instrs.clone();
    let contract_dw = contract(v, WIDTH, Extent::Dynamic, true);
    let contract_dx = contract(Extent::Dynamic, WIDTH, v, false);
    grad_instrs.extend([
        mk.instr(
            "d_logits",
            cross_entropy_backward(),
            &[(Arena, scores), (Input(1), 0), (Arena, scores)],
            &[ROWS, Size::ONE],
            &[Coeff::Inverse(ROWS)],
        ),
        mk.instr(
            "d_x.pack",
            pack(w, v, false),
            &[(Params, head), (Arena, packed)],
            &[fixed(WIDTH), fixed(VOCAB)],
            &[],
        ),
        mk.instr(
            "d_x",
            contract_dx,
            &[(Arena, scores), (Arena, packed), (Arena, d_x)],
            &[ROWS, fixed(WIDTH), fixed(VOCAB)],
            &[],
        ),
        mk.instr(
            "d_head.pack",
            pack(w, Extent::Dynamic, false),
            &[(Arena, x), (Arena, packed)],
            &[fixed(WIDTH), ROWS],
            &[],
        ),
        mk.instr(
            "d_head",
            contract_dw,
            &[(Arena, scores), (Arena, packed), (Grads, head)],
            &[fixed(VOCAB), fixed(WIDTH), ROWS],
            &[],
        ),
        mk.instr(
            "d_embed.zero",
            zero_rows(),
            &[(Grads, embed)],
            &[fixed(VOCAB), Size::ONE],
            &[],
        ),
        mk.instr(
            "d_embed",
            KernelSpec::ScatterAdd(Gather {
                dtype: DType::F32,
                cols: WIDTH,
            }),
            &[(Input(0), 0), (Arena, d_x), (Grads, embed)],
            &[ROWS, fixed(VOCAB)],
            &[],
        ),
    ]);
    let optimizer = AdamW {
        lr: 0.05,
        betas: (0.9, 0.95),
        eps: 1e-8,
        weight_decay: 0.01,
    };
    let train = Train {
        data: Data {
            files: vec!["corpus.txt".into()],
            form: Form::Text {
                tokenizer: Tokenizer::Bytes,
                key: "text".into(),
                separator: "\n".into(),
            },
            held_out_percent: 10,
        },
        groups: vec![],
        ema: None,
        evaluations: None,
        patience: None,
        optimizer: optimizer.clone().into(),
        schedule: Cosine {
            warmup: 4,
            floor: 0.1,
        }
        .into(),
        batch: BATCH,
        tokens: None,
        keep: None,
        accumulate: 1,
        steps: 40,
        clip: Some(1.0),
        seed: 7,
        memory: Memory::Store,
        precision: Precision::F32,
        loss: Default::default(),
        also: Default::default(),
        tune: Default::default(),
        spectral: None,
        from: None,
    };
    let lines = fixed(2 * TABLE / LINE);
    let named = |n: &str| Coeff::Named(n.into());
    let update_instrs = vec![
        mk.instr(
            "norm.rows",
            squares(),
            &[(Grads, 0), (Arena, per_row)],
            &[lines, Size::ONE],
            &[],
        ),
        mk.instr(
            "norm",
            column_sum(false),
            &[(Arena, per_row), (Arena, scalar)],
            &[lines, Size::ONE],
            &[],
        ),
        mk.instr(
            "clip",
            clip_factor(),
            &[(Arena, scalar), (Output(0), 0), (Arena, scalar)],
            &[Size::ONE, Size::ONE],
            &[Coeff::Value(1.0)],
        ),
        mk.instr(
            "adamw",
            adamw(&optimizer),
            &[
                (Params, 0),
                (Moment1, 0),
                (Moment2, 0),
                (Grads, 0),
                (Arena, scalar),
            ],
            &[lines, Size::ONE],
            &[named(named::LR), named(named::BIAS1), named(named::BIAS2)],
        ),
    ];
    let entry = |inputs: &[&Io], outputs: &[Io], instrs| Entry {
        maxima: Maxima::new(BATCH, CONTEXT),
        inputs: inputs.iter().map(|io| (*io).clone()).collect(),
        outputs: outputs.to_vec(),
        arena_bytes,
        scratch_bytes: 1 << 20,
        pieces: vec![],
        kept: vec![],
        instrs,
    };
    let forward = entry(&[&tokens], &[logits], forward_instrs);
    // A token's logits do not depend on other tokens here: to go on after some is to start anew.
    let decode = Entry {
        maxima: Maxima::new(1, CONTEXT),
        ..forward.clone()
    };
    let entries = BTreeMap::from([
        (EntryId::Forward, forward),
        (EntryId::Prepare, entry(&[], &[], vec![])),
        (EntryId::Decode, decode),
        (
            EntryId::Loss,
            entry(
                &[&tokens, &targets],
                std::slice::from_ref(&loss),
                loss_instrs,
            ),
        ),
        (
            EntryId::Grad,
            entry(&[&tokens, &targets], &[loss], grad_instrs),
        ),
        (
            EntryId::Update,
            entry(&[], &[io("grad_norm", DType::F32, &[])], update_instrs),
        ),
    ]);
    let param = |path: &str, offset| Param {
        path: path.into(),
        shape: vec![VOCAB, WIDTH],
        offset,
        init: Init::Normal { std: 0.1 },
        decay: true,
    };
    Manifest {
        format: FORMAT,
        odec: "test".into(),
        name: "tiny".into(),
        source: "model tiny { }\n".into(),
        settings: vec![],
        imports: vec![],
        model: Model {
            vocab: VOCAB,
            tokens: None,
            context: CONTEXT,
            source: 0,
            width: WIDTH,
            also: Default::default(),
        },
        params: vec![param("embed.weight", embed), param("output.weight", head)],
        constants: vec![Constant {
            offset: 0,
            table: Table::RotaryCos {
                positions: 2,
                head: 4,
                base: 1e4,
                turns: Default::default(),
            },
        }],
        train: Some(train),
        program: Program {
            maxima: Maxima::new(BATCH, CONTEXT),
            kernels: mk.kernels,
            sites: mk.sites.list,
            entries,
            param_bytes: 2 * TABLE * 4,
            trained_bytes: 2 * TABLE * 4,
            real: DType::F32,
            const_bytes: 64,
            prepared_bytes: 0,
            cache_bytes: 0,
        },
        objects: vec![],
        claims: vec![],
        depths: vec![],
    }
}

/// A text with structure a bigram model can learn.
pub fn corpus(bytes: usize) -> String {
    "the quick brown fox jumps over the lazy dog. "
        .chars()
        .cycle()
        .take(bytes)
        .collect()
}

/// Damages each file of a folder `times` times, by flipping a bit or cutting the end off, has `look` look, and mends it.
pub fn damage(folder: &Path, random: &Stream, times: u64, look: &mut dyn FnMut(&str)) {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.is_file())
        .collect();
    files.sort();
    for (f, file) in files.iter().enumerate() {
        let whole = fs::read(file).unwrap();
        for n in 0..times {
            let n = times * f as u64 + n;
            let bit = random.below(n, whole.len() as u64 * 8) as usize;
            let mut bytes = whole.clone();
            let what = if n.is_multiple_of(5) {
                bytes.truncate(bit / 8);
                format!("{} cut to {} bytes", file.display(), bit / 8)
            } else {
                bytes[bit / 8] ^= 1 << (bit % 8);
                format!("bit {bit} of {}", file.display())
            };
            fs::write(file, bytes).unwrap();
            look(&what);
        }
        fs::write(file, whole).unwrap();
    }
}

/// Side of an image, which is one patch: its numbers are the row that a token has in the tiny model.
pub const SIDE: u64 = 4;

/// The tiny model, of images in the place of tokens: logits = image · headᵀ.
pub fn images() -> Manifest {
    let mut m = manifest();
    let mut copy = Body::default();
    let number = copy.load(0, Access::full(WIDTH));
    let spec = rows(
        WIDTH,
        &[DType::F32; 2],
        0,
        copy,
        &[(1, Access::full(WIDTH), number)],
    );
    let symbol = spec.symbol();
    m.program.kernels.push(Kernel { symbol, spec });
    let copies = m.program.kernels.len() as u32 - 1;
    let one = Maxima::new(BATCH, 1);
    (m.model.context, m.program.maxima) = (1, one);
    let sites = &m.program.sites;
    let entries = &mut m.program.entries;
    entries.remove(&EntryId::Decode);
    entries.remove(&EntryId::Prepare);
    for e in entries.values_mut() {
        e.maxima = one;
        for io in &mut e.inputs {
            match io.name == names::TOKENS {
                true => {
                    let patch = [Dim::Batch, Dim::Seq, Dim::Fixed(WIDTH)];
                    *io = self::io(names::PATCHES, DType::F32, &patch);
                }
                false => io.shape = vec![Dim::Batch, Dim::Fixed(1), Dim::Fixed(1)],
            }
        }
        let is = |i: &Instr, path| sites[i.site as usize] == at(path);
        e.instrs.retain(|i| !is(i, "d_embed"));
        for i in e.instrs.iter_mut().filter(|i| is(i, "embed")) {
            i.kernel = copies;
            i.operands.remove(1);
            i.dims = vec![ROWS, Size::ONE];
        }
    }
    let train = m.train.as_mut().unwrap();
    train.loss = Loss::Class;
    train.data.form = Form::Images(Images {
        height: SIDE,
        width: SIDE,
        channels: 1,
        patch: SIDE,
        classes: VOCAB,
        mean: 0.5,
        std: 0.5,
        crop: 0,
        flip: false,
        leading: 0,
        flow: None,
    });
    m
}

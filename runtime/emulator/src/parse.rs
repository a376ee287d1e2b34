//! PTX text to instructions.
//!
//! Takes a module as the compiler writes it; gives its kernels. Registers become numbers, labels become positions, shared
//! memory gets addresses. Everything that is not known ends the test: nothing is skipped but comments and `.pragma`.

use super::isa::{
    Arg, Instruction, Kernel, MAP_BYTES, MAPS, Op, Relation, Rounding, SHARED, Space, Ty,
};
use std::collections::HashMap;

struct Function {
    kernel: Kernel,
    registers: HashMap<String, u32>,
    symbols: HashMap<String, u64>,
    labels: HashMap<String, usize>,
    jumps: Vec<(usize, String)>,
    /// How many braces were opened within the function; labels within some are their own.
    scopes: usize,
    within: Option<usize>,
}

/// All kernels of a module.
pub fn module(text: &str) -> Vec<Kernel> {
    let mut out = Vec::new();
    let mut function: Option<Function> = None;
    let mut inside = false;
    let mut begun = String::new();
    let mut outside = HashMap::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap().trim();
        if line.is_empty() {
            continue;
        }
        // An instruction may take several lines.
        if inside && !["{", "}"].contains(&line) && !line.ends_with([';', ':']) {
            begun.push_str(line);
            begun.push(' ');
            continue;
        }
        let whole = std::mem::take(&mut begun) + line;
        let line = whole.as_str();
        if let Some(name) = line.strip_prefix(".visible .entry ") {
            let kernel = Kernel {
                name: name.trim_end_matches('(').to_string(),
                params: 0,
                maps: 0,
                threads: 0,
                shared: 0,
                dynamic: outside.values().next().copied(),
                registers: 0,
                code: vec![],
            };
            function = Some(Function {
                kernel,
                registers: HashMap::new(),
                symbols: (outside.drain())
                    .map(|(name, align)| (name, SHARED + align))
                    .collect(),
                labels: HashMap::new(),
                jumps: vec![],
                scopes: 0,
                within: None,
            });
            continue;
        }
        if let Some(rest) = line.strip_prefix(".extern .shared .align ") {
            let (align, rest) = rest.split_once(" .b8 ").expect(line);
            let name = rest.strip_suffix("[];").expect(line);
            assert!(outside.is_empty() && function.is_none(), "{line}");
            outside.insert(name.to_string(), align.parse().unwrap());
            continue;
        }
        let Some(f) = &mut function else {
            let known = [".version", ".target", ".address_size"];
            assert!(known.iter().any(|k| line.starts_with(k)), "{line}");
            continue;
        };
        match line {
            "{" if inside => f.open(line),
            "{" => inside = true,
            "}" if f.within.take().is_some() => {}
            "}" => {
                inside = false;
                out.push(function.take().unwrap().finish());
            }
            _ if !inside => f.head(line),
            _ => f.line(line),
        }
    }
    assert!(function.is_none(), "a kernel without an end");
    out
}

impl Function {
    fn finish(mut self) -> Kernel {
        for (at, label) in &self.jumps {
            self.kernel.code[*at].op = Op::Branch(self.labels[label]);
        }
        self.kernel.registers = self.registers.len();
        self.kernel
    }

    fn open(&mut self, line: &str) {
        assert!(self.within.is_none(), "{line}");
        self.within = Some(self.scopes);
        self.scopes += 1;
    }

    /// A label's name in the function.
    fn label(&self, name: &str) -> String {
        match self.within {
            Some(scope) => format!("{name} {scope}"),
            None => name.into(),
        }
    }

    fn head(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix(".param .align 64 .b8 ") {
            let name = rest.trim_end_matches(',').strip_suffix("[128]");
            let at = MAPS + MAP_BYTES * self.kernel.maps as u64;
            self.symbols.insert(name.expect(line).into(), at);
            self.kernel.maps += 1;
        } else if line.starts_with(".param") {
            assert_eq!(self.kernel.maps, 0, "{line}");
            self.kernel.params += 1;
        } else if let Some(n) = line.strip_prefix(".reqntid ") {
            self.kernel.threads = n.split(',').next().unwrap().trim().parse().unwrap();
        } else {
            assert!(
                [")", ".maxnreg"].iter().any(|k| line.starts_with(k)),
                "{line}"
            );
        }
    }

    fn line(&mut self, line: &str) {
        if line.starts_with(".reg") || line.starts_with(".pragma") {
            return;
        }
        if let Some(rest) = line.strip_prefix(".shared .align ") {
            let (align, rest) = rest.split_once(" .b8 ").expect(line);
            let (name, size) = rest.trim_end_matches("];").split_once('[').expect(line);
            let at = self.kernel.shared.next_multiple_of(align.parse().unwrap());
            self.symbols.insert(name.into(), SHARED + at);
            self.kernel.shared = at + size.parse::<u64>().unwrap();
            return;
        }
        if let Some(label) = line.strip_suffix(':') {
            let label = self.label(label);
            self.labels.insert(label, self.kernel.code.len());
            return;
        }
        self.instruction(line.strip_suffix(';').unwrap_or_else(|| panic!("{line}")));
    }

    fn register(&mut self, name: &str) -> u32 {
        let n = self.registers.len() as u32;
        *self.registers.entry(name.to_string()).or_insert(n)
    }

    fn arg(&mut self, s: &str) -> Arg {
        let s = s.trim();
        match s {
            "%tid.x" => Arg::Tid,
            "%ctaid.x" => Arg::Ctaid,
            "%nctaid.x" => Arg::Nctaid,
            "true" => Arg::Imm(1),
            "false" => Arg::Imm(0),
            _ if s.starts_with('%') => Arg::Reg(self.register(s)),
            _ if s.starts_with("0f") || s.starts_with("0d") => {
                Arg::Imm(u64::from_str_radix(&s[2..], 16).expect(s))
            }
            _ if s.starts_with("0x") => {
                let digits = s[2..].trim_end_matches('U');
                Arg::Imm(u64::from_str_radix(digits, 16).expect(s))
            }
            _ => match s.parse::<i128>() {
                Ok(n) => Arg::Imm(n as u64),
                Err(_) => Arg::Imm(
                    *self
                        .symbols
                        .get(s)
                        .unwrap_or_else(|| panic!("what is {s}?")),
                ),
            },
        }
    }

    /// `[base+offset]`.
    fn address(&mut self, text: &str) -> (Arg, i64) {
        let inner = text.trim_matches(['[', ']']);
        let (base, add) = inner.split_once('+').unwrap_or((inner, "0"));
        (self.arg(base), add.trim().parse().expect(text))
    }

    fn instruction(&mut self, line: &str) {
        let text = line.to_string();
        let mut rest = line;
        let mut guard = None;
        if let Some(g) = rest.strip_prefix('@') {
            let (name, after) = g.split_once(char::is_whitespace).expect(line);
            let negated = name.starts_with('!');
            guard = Some((self.register(name.trim_start_matches('!')), negated));
            rest = after.trim();
        }
        let (name, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let mut groups = split(operands);
        let parts: Vec<&str> = name.split('.').collect();
        let last = parts
            .iter()
            .rev()
            .find_map(|p| Ty::of(p))
            .unwrap_or(Ty::B(32));
        let (op, ty) = self.operation(&parts, last, line, &groups);
        let mut offset = 0;
        let mut from_offset = 0;
        let (to, args): (Vec<u32>, Vec<Arg>) = match op {
            Op::Branch(_) => {
                let label = self.label(&groups[0]);
                self.jumps.push((self.kernel.code.len(), label));
                (vec![], vec![])
            }
            Op::Barrier | Op::WarpBarrier | Op::Return | Op::CloseCopies => (vec![], vec![]),
            Op::Publish
            | Op::FenceProducts
            | Op::CloseProducts
            | Op::AwaitLaunch
            | Op::PermitLaunch => (vec![], vec![]),
            Op::Product { columns, .. } => {
                assert_eq!(groups[4..6], ["1", "1"], "{line}");
                let list = |n: usize| groups[n].trim_matches(['{', '}']).split(',');
                let to: Vec<u32> = list(0).map(|r| self.register(r.trim())).collect();
                assert_eq!(2 * to.len(), columns, "{line}");
                let args = (1..4).flat_map(list);
                (to, args.map(|a| self.arg(a)).collect())
            }
            Op::Prepare | Op::Expect | Op::Over => {
                let to = match op {
                    Op::Over => vec![groups.remove(0)],
                    _ => vec![],
                };
                if op == Op::Expect {
                    assert_eq!(groups.remove(0), "_", "{line}");
                }
                let (base, add) = self.address(&groups[0]);
                offset = add;
                let to = to.iter().map(|r| self.register(r)).collect();
                (to, vec![base, self.arg(&groups[1])])
            }
            Op::Prefetch => {
                let (from, add) = self.address(&groups[0]);
                offset = add;
                (vec![], vec![from])
            }
            Op::CopyBox => {
                let (to, add) = self.address(&groups[0]);
                offset = add;
                let (mbarrier, add) = self.address(&groups[2]);
                assert_eq!(add, 0, "{line}");
                let inner = groups[1].trim_matches(['[', ']']).to_string();
                let (map, from) = inner.split_once(',').expect(line);
                let mut args = vec![to, mbarrier, self.arg(map)];
                let from = from.trim().trim_matches(['{', '}']).split(',');
                args.extend(from.map(|x| self.arg(x)));
                (vec![], args)
            }
            Op::AwaitCopies | Op::AwaitProducts => (vec![], vec![self.arg(&groups[0])]),
            Op::LoadMatrices(_) => {
                let (base, add) = self.address(&groups[1]);
                offset = add;
                let to = groups[0].trim_matches(['{', '}']).split(',');
                let to = to.map(str::trim).collect::<Vec<_>>();
                (to.iter().map(|r| self.register(r)).collect(), vec![base])
            }
            Op::CopyAhead => {
                let (to, from) = (self.address(&groups[0]), self.address(&groups[1]));
                (offset, from_offset) = (to.1, from.1);
                assert_eq!(groups[2], "16", "{line}");
                let bytes = groups.get(3).map_or(Arg::Imm(16), |g| self.arg(g));
                (vec![], vec![to.0, from.0, bytes])
            }
            Op::Param(_) => (vec![self.register(&groups[0])], vec![]),
            Op::Load(_) | Op::Store(_) => {
                if let Op::Store(_) = op {
                    groups.swap(0, 1);
                }
                let address = groups
                    .iter()
                    .find(|g| g.starts_with('['))
                    .expect(line)
                    .clone();
                let values = groups
                    .iter()
                    .find(|g| !g.starts_with('['))
                    .expect(line)
                    .clone();
                let (base, add) = self.address(&address);
                offset = add;
                let values: Vec<String> = values
                    .trim_matches(['{', '}'])
                    .split(',')
                    .map(|v| v.trim().into())
                    .collect();
                match op {
                    Op::Load(_) => (
                        values.iter().map(|v| self.register(v)).collect(),
                        vec![base],
                    ),
                    _ => {
                        let mut args = vec![base];
                        args.extend(values.iter().map(|v| self.arg(v)));
                        (vec![], args)
                    }
                }
            }
            _ => {
                let to = groups.remove(0);
                let to = to.trim_matches(['{', '}']);
                // a second result of a shuffle, after `|`, is not used
                let to = to.split('|').next().unwrap();
                let to = to.split(',').map(|v| self.register(v.trim())).collect();
                let args = groups.iter().flat_map(|g| {
                    g.trim_matches(['{', '}'])
                        .split(',')
                        .map(str::to_string)
                        .collect::<Vec<_>>()
                });
                let args: Vec<String> = args.collect();
                (to, args.iter().map(|a| self.arg(a)).collect())
            }
        };
        self.kernel.code.push(Instruction {
            guard,
            op,
            ty,
            to,
            args,
            offset,
            from_offset,
            text,
        });
    }

    fn operation(&mut self, parts: &[&str], ty: Ty, line: &str, groups: &[String]) -> (Op, Ty) {
        let has = |s: &str| parts.contains(&s);
        let float = matches!(ty, Ty::F(_));
        let space = || match (has("global"), has("shared")) {
            (true, _) => Space::Global,
            (_, true) => Space::Shared,
            _ => panic!("a generic access: {line}"),
        };
        // PTX lets an assembler fuse what is not told to round
        if float && ["add", "sub", "mul", "fma", "div", "sqrt", "rcp"].contains(&parts[0]) {
            assert!(
                has("rn") && !has("ftz") && !has("approx"),
                "not rounded as it should: {line}"
            );
        }
        let op = match parts[0] {
            "mov" if groups[0].starts_with('{') => Op::Unpack,
            "mov" if groups[1].starts_with('{') => Op::Pack,
            "mov" => Op::Mov,
            "cvta" => {
                let space = |name: &str| match name {
                    "global" => Space::Global,
                    "shared" => Space::Shared,
                    "param" => Space::Param,
                    _ => panic!("unknown space: {line}"),
                };
                match parts[1..] {
                    ["to", name, "u64"] => Op::FromGeneric(space(name)),
                    [name, "u64"] => Op::ToGeneric(space(name)),
                    _ => panic!("unknown instruction: {line}"),
                }
            }
            "ld" if has("param") => {
                let name = groups[1].trim_matches(['[', ']']);
                Op::Param(name.rsplit('_').next().unwrap().parse().expect(line))
            }
            "ld" => Op::Load(space()),
            "st" => Op::Store(space()),
            "add" => Op::Add,
            "sub" => Op::Sub,
            "mul" if has("wide") => Op::MulWide,
            "mul" if has("hi") => Op::MulHigh,
            "mul" => Op::Mul,
            "mad" if has("wide") => Op::MadWide,
            "mad" => Op::Mad,
            "fma" => Op::Fma,
            "div" => Op::Div,
            "rem" => Op::Rem,
            "min" | "max" if has("NaN") || has("ftz") => panic!("another minimum: {line}"),
            "min" => Op::Min,
            "max" => Op::Max,
            "neg" => Op::Neg,
            "abs" => Op::Abs,
            "sqrt" => Op::Sqrt,
            "rcp" => Op::Reciprocal,
            "and" => Op::And,
            "or" => Op::Or,
            "xor" => Op::Xor,
            "not" => Op::Not,
            "shl" => Op::ShiftLeft,
            "shr" => Op::ShiftRight,
            "setp" => {
                assert!(parts.len() == 3, "{line}");
                // Integers are always ordered.
                let known = float || ["eq", "ne", "lt", "le", "gt", "ge"].contains(&parts[1]);
                let relation = Relation::named(parts[1]).filter(|_| known);
                Op::Compare(relation.unwrap_or_else(|| panic!("{line}")))
            }
            "selp" => Op::Select,
            "cvt" if has("bf16x2") => {
                assert_eq!(parts, ["cvt", "rn", "bf16x2", "f32"], "{line}");
                Op::Pair
            }
            "cvt" => {
                let types: Vec<Ty> = parts.iter().filter_map(|p| Ty::of(p)).collect();
                let named = [
                    ("rni", Rounding::Rni),
                    ("rzi", Rounding::Rzi),
                    ("rn", Rounding::Rn),
                ];
                let rounding = named.into_iter().find(|(name, _)| has(name));
                let rounding = rounding.map_or(Rounding::Unnamed, |(_, r)| r);
                assert!(!has("sat") && types.len() == 2, "{line}");
                return (Op::Convert(types[1], rounding), types[0]);
            }
            "bfe" => Op::Field,
            "prmt" => Op::Permute,
            "popc" => Op::Popc,
            "clz" => Op::Clz,
            "brev" => Op::Brev,
            "bar" if has("warp") => Op::WarpBarrier,
            "bar" | "barrier" => Op::Barrier,
            "shfl" if has("bfly") => Op::FromDistance,
            "shfl" if has("idx") => Op::FromLane,
            "vote" if has("ballot") => Op::Ballot,
            "ldmatrix" => {
                let plain = ["ldmatrix", "sync", "aligned", "m8n8", "x4"];
                let ends = (&parts[..5], &parts[parts.len() - 2..]);
                assert_eq!(ends, (&plain[..], &["shared", "b16"][..]), "{line}");
                Op::LoadMatrices(has("trans"))
            }
            "mma" => {
                let known = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32";
                assert_eq!(parts.join("."), known, "{line}");
                Op::Multiply
            }
            "ex2" => {
                assert_eq!(parts, ["ex2", "approx", "ftz", "f32"], "{line}");
                Op::Exp2
            }
            "griddepcontrol" => match parts[1..] {
                ["wait"] => Op::AwaitLaunch,
                ["launch_dependents"] => Op::PermitLaunch,
                _ => panic!("unknown instruction: {line}"),
            },
            "fence" => {
                assert_eq!(parts, ["fence", "proxy", "async", "shared::cta"], "{line}");
                Op::Publish
            }
            "wgmma" => {
                assert_eq!(parts[2..4], ["sync", "aligned"], "{line}");
                match parts[1] {
                    "fence" => Op::FenceProducts,
                    "commit_group" => Op::CloseProducts,
                    "wait_group" => Op::AwaitProducts,
                    "mma_async" => product(&parts[4..], groups, line),
                    _ => panic!("unknown instruction: {line}"),
                }
            }
            "mbarrier" => match &parts[1..] {
                ["init", "shared", "b64"] => Op::Prepare,
                ["arrive", "expect_tx", "shared", "b64"] => Op::Expect,
                ["try_wait", "parity", "shared", "b64"] => Op::Over,
                _ => panic!("unknown instruction: {line}"),
            },
            "cp" if has("bulk") => {
                let known = "shared::cluster.global.mbarrier::complete_tx::bytes";
                assert_eq!(parts[..4].join("."), "cp.async.bulk.tensor", "{line}");
                assert_eq!(parts[5..].join("."), known, "{line}");
                let rank = groups[1].matches(',').count();
                assert_eq!(parts[4], format!("{rank}d"), "{line}");
                Op::CopyBox
            }
            "cp" if has("commit_group") => Op::CloseCopies,
            "cp" if has("wait_group") => Op::AwaitCopies,
            "cp" => {
                assert_eq!(parts, ["cp", "async", "cg", "shared", "global"], "{line}");
                Op::CopyAhead
            }
            "prefetch" => {
                assert_eq!(parts, ["prefetch", "global", "L2"], "{line}");
                Op::Prefetch
            }
            "bra" => Op::Branch(0),
            "ret" => Op::Return,
            _ => panic!("unknown instruction: {line}"),
        };
        (op, ty)
    }
}

fn product(parts: &[&str], groups: &[String], line: &str) -> Op {
    let columns = parts[0].strip_prefix("m64n");
    let columns = columns.and_then(|s| s.strip_suffix("k16")).expect(line);
    assert_eq!(parts[1..], ["f32", "bf16", "bf16"], "{line}");
    let turned = |n: usize| match groups[n].as_str() {
        "0" => false,
        "1" => true,
        _ => panic!("{line}"),
    };
    let left_in_registers = groups[1].starts_with('{');
    assert_eq!(
        groups.len(),
        if left_in_registers { 7 } else { 8 },
        "{line}"
    );
    Op::Product {
        columns: columns.parse().expect(line),
        left: (!left_in_registers).then(|| turned(6)),
        right: turned(groups.len() - 1),
    }
}

/// Operands, at commas outside of braces and brackets.
fn split(operands: &str) -> Vec<String> {
    let (mut out, mut depth) = (vec![String::new()], 0);
    for c in operands.chars() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        match c {
            ',' if depth == 0 => out.push(String::new()),
            c => out.last_mut().unwrap().push(c),
        }
    }
    out.iter()
        .map(|s| s.trim().to_string())
        .filter(|s| !s.is_empty())
        .collect()
}

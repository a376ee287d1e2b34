//! Stage programs as text: what is printed is read as the same program, what is malformed is refused at its place.
//!
//! Every program that a test of this folder compiles is read back as well ([`crate::common`]).

use crate::common::compile_text;
use crate::slopes::{self, Random};
use odec_compiler::scheme::embedded::Embedded;
use odec_compiler::scheme::method::program as of_late_step;
use odec_compiler::scheme::per_use::SHARED;
use odec_compiler::scheme::solver::{Gradient, Solver};
use odec_compiler::scheme::stage::{Derived, Iterates, Projection, Steps, Unknown, default_eps};
use odec_compiler::scheme::text::parse;
use odec_compiler::scheme::{
    Coeff, Combination, Facts, Leaf, Learned, Moment, StageInstr, StageProgram, ValueId,
};
use odec_grammar::Span;
use odec_graph::Exact;
use odec_graph::solve::{self, Mixing, Rule};
use odec_library::{LibraryScheme, shipped};
use std::rc::Rc;

const NOWHERE: Span = Span {
    source: 0,
    start: 0,
    end: 0,
};

/// Programs as they are printed one after another.
pub fn printed(programs: &[StageProgram]) -> String {
    let each: Vec<String> = programs.iter().map(StageProgram::to_string).collect();
    each.join("\n")
}

fn leaf(name: &str) -> Rc<Leaf> {
    Rc::new(Leaf {
        name: name.to_string(),
        params: Vec::new(),
        body: None,
        layers: Default::default(),
        facts: Facts::OPEN,
        span: NOWHERE,
    })
}

fn placeless(instr: &StageInstr) -> StageInstr {
    let mut own = instr.clone();
    if let StageInstr::Eval { span, .. }
    | StageInstr::Flow { span, .. }
    | StageInstr::Phi { span, .. }
    | StageInstr::Unknown(Unknown::Solved { span, .. } | Unknown::Without { span, .. }) =
        &mut own
    {
        *span = NOWHERE;
    }
    own
}

/// Without what is not written: places, what fields are, whose coefficients are, and what the source calls values.
fn bare(p: &StageProgram) -> StageProgram {
    let instrs = |all: &[StageInstr]| all.iter().map(placeless).collect::<Vec<StageInstr>>();
    let learned = |l: &Learned| Learned {
        span: NOWHERE,
        owner: None,
        ..l.clone()
    };
    StageProgram {
        fields: p.fields.iter().map(|l| leaf(&l.name)).collect(),
        instrs: instrs(&p.instrs),
        learned: p.learned.iter().map(learned).collect(),
        called: Vec::new(),
        embedded: p.embedded.as_ref().map(|e| Embedded {
            instrs: instrs(&e.instrs),
            result: e.result.clone(),
        }),
        ..p.clone()
    }
}

/// What is printed of programs is read as the same ones.
#[track_caller]
pub fn is_read_back(programs: &[StageProgram]) {
    let text = printed(programs);
    let read = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let bare: Vec<StageProgram> = programs.iter().map(bare).collect();
    for (read, own) in read.iter().zip(&bare) {
        assert_eq!(read, own, "{text}");
    }
    assert_eq!(read.len(), programs.len(), "{text}");
    assert_eq!(printed(&read), text);
}

/// As they are computed, and as proofs look at them: with exact flows, and with the solutions of equations.
#[test]
fn every_scheme_and_every_model_of_the_library() {
    let mut solved = 0;
    for LibraryScheme { text, .. } in shipped::library().iter() {
        // Compiled, and what it computes read back.
        let flow = slopes::flow(text);
        for inner in [Steps::Euler, Steps::Exact] {
            if let Ok(program) = of_late_step(&flow, inner, &SHARED) {
                let unknown = |i: &&StageInstr| matches!(i, StageInstr::Unknown(_));
                solved += program.instrs.iter().filter(unknown).count();
                is_read_back(&[program]);
            }
        }
    }
    assert!(solved > 0, "no equation is solved to a tolerance");
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemes/models");
    let paths = std::fs::read_dir(models).expect("models");
    let mut compiled = 0;
    for path in paths.map(|e| e.expect("an entry").path()) {
        let text = std::fs::read_to_string(&path).expect("a text");
        let outcome = compile_text(&text);
        compiled += usize::from(!outcome.checked().programs.is_empty());
    }
    assert!(compiled > 20, "{compiled} models");
}

#[test]
fn random_step_programs() {
    let mut random = Random(7);
    for _ in 0..200 {
        let text = slopes::scheme(&mut random);
        if let Ok(program) = of_late_step(&slopes::flow(&text), Steps::Exact, &SHARED) {
            is_read_back(&[program]);
        }
    }
}

/// Names that are words of the text, or look like values, among others.
const FIELDS: &[&str] = &["F", "att.1", "normal", "flow", "A'", "k1", "exp"];
const SYMBOLS: &[&str] = &[
    "b", "beta[2]", "a[1][0]", "k1", "shared", "per", "x", "root",
];
const NUMBERS: &[&str] = &[
    "1",
    "-1",
    "1/3",
    "-7/4",
    "1/2 - sqrt(3)/6",
    "-1/2 + sqrt(3)/6",
    "-2*root(2, 3)/3",
    "sqrt(2 + sqrt(2))",
    "root(x^3 - 3*x + 1, 0.35)",
    "-123456789012345678901234567890/7",
];

fn number(r: &mut Random) -> Exact {
    r.pick(NUMBERS).parse().expect("a number")
}

/// A program with every kind of instruction, made without a scheme.
struct Drawn<'r> {
    r: &'r mut Random,
    fields: Vec<&'static str>,
    symbols: Vec<String>,
}

/// Some of these, in a random order.
fn some<'a>(r: &mut Random, of: &[&'a str]) -> Vec<&'a str> {
    let mut left = of.to_vec();
    let n = 1 + r.below(3);
    (0..n).map(|_| left.remove(r.below(left.len()))).collect()
}

impl Drawn<'_> {
    fn coefficient(&mut self) -> Coeff {
        let mut sum = Coeff::zero();
        for _ in 0..1 + self.r.below(3) {
            let mut term = Coeff::constant(number(self.r));
            for _ in 0..self.r.below(4) {
                let symbol = &self.symbols[self.r.below(self.symbols.len())];
                term = term.mul(&Coeff::symbol(symbol)).expect("few factors");
            }
            // Roots of different numbers may have no sum.
            sum = sum.add(&term).unwrap_or(term);
        }
        sum
    }

    fn value(&mut self, made: usize) -> ValueId {
        ValueId(self.r.below(made + 1) as u32)
    }

    fn sum(&mut self, made: usize) -> Combination {
        let mut sum = Combination::zero();
        for _ in 0..self.r.below(4) {
            let (c, v) = (self.coefficient(), self.value(made));
            let mut more = sum.clone();
            if more.add_scaled(&c, &Combination::value(v)).is_ok() {
                sum = more;
            }
        }
        sum
    }

    fn iterates(&mut self, n: usize, made: usize) -> Iterates {
        let pair = |_| [self.value(made), self.value(made)];
        (0..n).map(pair).collect()
    }

    fn solver(&mut self) -> Solver {
        let k = 1 + self.r.below(9);
        let mixing = match self.r.below(3) {
            0 => None,
            n => Some(Mixing {
                tol: Exact::ratio(1, 1000),
                memory: self.r.below(2) * k,
                rule: [Rule::Anderson, Rule::Broyden][n - 1],
            }),
        };
        let gradients = [
            Gradient::Unroll,
            Gradient::Implicit,
            Gradient::Phantom(k),
            Gradient::Last(k),
        ];
        Solver {
            finds: solve::Solver {
                mixing: mixing.map(plain_is_anderson),
                iterations: k,
            },
            gradient: gradients[self.r.below(4)],
        }
    }

    /// An instruction that reads the first values, or, of an unknown, any.
    fn instr(&mut self, made: usize, all: usize) -> StageInstr {
        let (field, span) = (self.r.below(self.fields.len()), NOWHERE);
        match self.r.below(13) {
            0 | 1 => StageInstr::Eval {
                field,
                usage: self.r.below(3),
                at: (0..1 + self.r.below(2)).map(|_| self.value(made)).collect(),
                when: match self.r.below(3) {
                    0 => None,
                    1 => Some(self.coefficient()),
                    _ => self.coefficient().add(&Coeff::symbol("t")).ok(),
                },
                span,
            },
            2 => StageInstr::Combine(self.sum(made)),
            3 => StageInstr::Past {
                name: self.r.pick(SYMBOLS).replace(['[', ']'], ""),
                when: [Moment::Ago(1 + self.r.below(3)), Moment::Start][self.r.below(2)],
            },
            4 => StageInstr::Product([self.value(made), self.value(made)]),
            5 => StageInstr::Project {
                at: self.value(made),
                onto: match self.r.below(2) {
                    0 => Projection::Nonnegative,
                    _ => Projection::Moments {
                        mean: self.coefficient(),
                        std: self.coefficient(),
                        eps: [default_eps(), number(self.r)][self.r.below(2)].clone(),
                    },
                },
            },
            6 => StageInstr::Flow {
                field,
                at: self.value(made),
                over: self.coefficient(),
                span,
            },
            7 => StageInstr::Phi {
                field,
                index: self.r.below(9) as u32,
                over: self.coefficient(),
                at: self.value(made),
                span,
            },
            8 => {
                let unknowns = 1 + self.r.below(3);
                let seen = 1 + self.r.below(3);
                StageInstr::Mix {
                    of: self.r.below(unknowns),
                    seen: (0..seen).map(|_| self.iterates(unknowns, made)).collect(),
                    mixing: plain_is_anderson(Mixing {
                        tol: number(self.r),
                        memory: self.r.below(4),
                        rule: [Rule::Anderson, Rule::Broyden][self.r.below(2)],
                    }),
                }
            }
            9 => StageInstr::Stop(self.value(made)),
            10 => StageInstr::Normal {
                like: self.value(made),
                std: number(self.r),
                number: self.r.below(3),
            },
            11 => {
                let unknowns = 1 + self.r.below(3);
                StageInstr::Solution {
                    of: self.r.below(unknowns),
                    unknowns: self.iterates(unknowns, made),
                    solver: self.solver(),
                }
            }
            _ => StageInstr::Unknown(Unknown::Solved {
                sum: self.sum(all),
                away: self.r.once_in(2).then(|| "`m` is \"1\" \\ 2".to_string()),
                span,
            }),
        }
    }

    fn instrs(&mut self, from: usize, n: usize) -> Vec<StageInstr> {
        (0..n).map(|i| self.instr(from + i, from + n)).collect()
    }

    fn program(mut self) -> StageProgram {
        let names = some(self.r, SYMBOLS);
        let learned: Vec<Learned> = names.iter().map(|s| self.learned(s)).collect();
        let mut derived = Vec::new();
        for name in ["c", "gamma[3]"].iter().take(self.r.below(3)) {
            let under = match self.r.below(2) {
                0 => Coeff::one(),
                _ => self.coefficient(),
            };
            let over = self.coefficient();
            let name = name.to_string();
            self.symbols.push(name.clone());
            derived.push(Derived { name, over, under });
        }
        let n = self.r.below(10);
        let instrs = self.instrs(0, n);
        let partner = self.r.below(4);
        let embedded = self.r.once_in(2).then(|| Embedded {
            instrs: self.instrs(n, partner),
            result: self.sum(n + partner),
        });
        let mut usages = vec![0; self.fields.len()];
        for (field, usage) in instrs.iter().filter_map(StageInstr::uses) {
            usages[field] = usages[field].max(usage + 1);
        }
        StageProgram {
            title: self
                .r
                .pick(&["scheme s(F)", "a — b, steps 0–2", "x", ""])
                .to_string(),
            fields: self.fields.iter().map(|name| leaf(name)).collect(),
            usages,
            instrs,
            learned,
            derived,
            keeps: (0..self.r.below(3))
                .map(|i| (format!("k{i}"), self.value(n)))
                .collect(),
            called: Vec::new(),
            result: self.sum(n),
            embedded,
        }
    }

    fn learned(&mut self, name: &str) -> Learned {
        self.symbols.push(name.to_string());
        Learned {
            name: name.to_string(),
            path: name.replace('[', ".").replace(']', ""),
            shared: self.r.once_in(2),
            per_channel: self.r.once_in(2),
            init: number(self.r),
            span: NOWHERE,
            owner: None,
        }
    }
}

/// Without a memory there is no rule.
fn plain_is_anderson(mixing: Mixing) -> Mixing {
    let rule = match mixing.memory {
        0 => Rule::default(),
        _ => mixing.rule,
    };
    Mixing { rule, ..mixing }
}

fn drawn(r: &mut Random) -> StageProgram {
    let fields = some(r, FIELDS);
    let symbols = ["h", "t"].map(String::from).into();
    Drawn { r, fields, symbols }.program()
}

#[test]
fn what_is_printed_is_read() {
    let mut random = Random(1);
    for _ in 0..100 {
        let programs: Vec<StageProgram> = (0..1 + random.below(3))
            .map(|_| drawn(&mut random))
            .collect();
        is_read_back(&programs);
    }
}

/// A text with a few places changed: cut, doubled, or with signs put in.
fn damaged(r: &mut Random, text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..1 + r.below(3) {
        let at = r.below(chars.len() + 1);
        let end = (at + r.below(9)).min(chars.len());
        let with = r.pick(&[
            "",
            "",
            "*",
            "/0",
            "^",
            "^99999",
            "(",
            ")",
            "[",
            "]",
            "->",
            "-",
            " = ",
            ", ",
            "k1",
            "y",
            "7",
            "\n",
            "\n  ",
            "—",
            "\"",
            "root(",
            "sqrt(-1)",
            "18446744073709551616",
            "fields ",
            "é",
            "//",
        ]);
        let doubled: String = chars[at..end].iter().collect();
        let with = if r.once_in(4) {
            doubled.repeat(2)
        } else {
            with.to_string()
        };
        chars.splice(at..end, with.chars());
    }
    chars.into_iter().collect()
}

/// Nothing panics, and what is still a program is read as what it says.
#[test]
fn damaged_texts_are_refused_or_read() {
    let mut random = Random(3);
    let mut refused = 0;
    for _ in 0..400 {
        let text = drawn(&mut random).to_string();
        match parse(&damaged(&mut random, &text)) {
            Ok(programs) => is_read_back(&programs),
            Err(e) => {
                assert!(e.line >= 1 && e.column >= 1, "{e}");
                refused += 1;
            }
        }
    }
    assert!(
        (250..400).contains(&refused),
        "{refused} of 400 are refused"
    );
}

#[test]
fn mistakes_are_located() {
    let wrong = |lines: &str| {
        let text = format!("s — 1 evaluation\n  k1 = F(x)\n{lines}\n");
        match parse(&text) {
            Ok(read) => panic!("{lines}: read as\n{}", printed(&read)),
            Err(e) => e.to_string(),
        }
    };
    for (lines, wanted) in [
        (
            "",
            "line 4, column 1: expected `learn`, `k1 = …`, `keep` or `return`, found the end of the line",
        ),
        (
            "  return k2",
            "line 3, column 10: this program makes no value `k2`",
        ),
        (
            "  y1 = k2\n  k2 = F(x)\n  return x",
            "line 3, column 8: `k2` is not made above",
        ),
        (
            "  k1 = F(x)\n  return x",
            "line 3, column 3: `k1` is made above already",
        ),
        (
            "  k2 F(x)",
            "line 3, column 6: expected `=` and an evaluation, found `F`",
        ),
        (
            "  k2 = F(x",
            "line 3, column 11: expected `,` or `)`, found the end of the line",
        ),
        (
            "  k2 = F()",
            "line 3, column 10: expected a value, such as `x` or `k1`, found `)`",
        ),
        (
            "  k2 = F(x) use 0",
            "line 3, column 17: expected a number from 1",
        ),
        (
            "  k2 = F(x) at",
            "line 3, column 15: expected a number or a coefficient, found the end of the line",
        ),
        (
            "  y1 = x + h*",
            "line 3, column 14: expected a number or a coefficient, found the end of the line",
        ),
        (
            "  y1 = x + 1/2",
            "line 3, column 15: expected `*` and a value, found the end of the line",
        ),
        ("  y1 = 1/0*k1", "line 3, column 10: division by zero"),
        (
            "  y1 = (1 + h",
            "line 3, column 14: expected `)`, found the end of the line",
        ),
        (
            "  y1 = sqrt(2*k1",
            "line 3, column 8: these parentheses are not closed in this line",
        ),
        ("  y1 = root(2; 3)*k1", "line 3, column 14: expected `,`"),
        ("  y1 = h^k*k1", "line 3, column 10: expected a whole power"),
        (
            "  y1 = b*k1",
            "line 3, column 8: `b` is no coefficient of this program",
        ),
        (
            "  y1 = k1*k1",
            "line 3, column 8: `k1` is no coefficient of this program",
        ),
        (
            "  p1 = past f[1]",
            "line 3, column 15: expected `-`, found `1`",
        ),
        (
            "  p1 = past f[-0]",
            "line 3, column 16: expected a number of steps from 1",
        ),
        (
            "  v1 = positive(x)",
            "line 3, column 8: expected `nonnegative` or `normalize`, found `positive`",
        ),
        (
            "  u1 = flow F(h) x",
            "line 3, column 18: expected `from`, found `x`",
        ),
        (
            "  f1 = phi9(h*F)(x)",
            "line 3, column 8: expected `exp`, or `phi1` to `phi8`",
        ),
        (
            "  f1 = phi1(h*2)(x)",
            "line 3, column 16: expected `*` and a value, found `)`",
        ),
        (
            "  z1 = next[1](x -> k1, tol: 1/10)",
            "line 3, column 12: expected the number of an unknown, up to 0",
        ),
        (
            "  z1 = next([x, k1] -> k1, tol: 1/10)",
            "line 3, column 24: expected as many values as before `->`: 2",
        ),
        (
            "  z1 = newton(x -> k1, tol: 1/10)",
            "line 3, column 8: expected `next`, `anderson` or `broyden`",
        ),
        (
            "  z1 = next(x -> k1, tol: h)",
            "line 3, column 27: expected a number without symbols",
        ),
        (
            "  e1 = solution(x -> k1) by fixed_point(iterations: 3) gradient all",
            "line 3, column 65: expected `implicit`, `phantom(1)` or `last(1)`",
        ),
        (
            "  w1 = unknown: it is late",
            "line 3, column 17: expected a reason why nothing is known, found `it`",
        ),
        (
            "  keep f = f",
            "line 3, column 12: this program makes no value `f`",
        ),
        (
            "  learn b = 1",
            "line 3, column 3: expected `learn`, `k1 = …`, `keep` or `return`, found `learn`",
        ),
        (
            "  return x\n  embedded — 1 more",
            "line 5, column 1: expected `k1 = …` or `return`, found the end of the line",
        ),
        (
            "  return x\n  embedded — 1 evaluation more\n  return k1",
            "line 4, column 12: expected the end of the line",
        ),
        (
            "  return x\n  return x",
            "line 4, column 3: expected `embedded`, or the title of a program, found `return`",
        ),
        (
            "  k2 = G(x)\n  return x",
            "line 1, column 5: expected `2 evaluations`",
        ),
        (
            "  return x\ns",
            "line 4, column 2: expected ` — ` and a number of evaluations behind the title",
        ),
    ] {
        assert_eq!(wrong(lines), wanted, "{lines}");
    }
    let alone = |text: &str| parse(text).expect_err(text).to_string();
    assert_eq!(
        alone("  k1 = F(x)"),
        "line 1, column 3: expected a title, which is not indented, found `k1`"
    );
    assert_eq!(
        alone("s — 1 evaluation\n  fields G, G\n"),
        "line 2, column 13: `G` is named twice"
    );
    assert_eq!(
        alone("s — 1 evaluation\n  fields G\n  k1 = F(x)\n"),
        "line 3, column 8: `F` is none of the fields of this program"
    );
}

/// Numbers of values are the text's own, and comments and spaces mean nothing.
#[test]
fn hand_written_texts() {
    let text = "// Two programs.\n\na — 2 evaluations\n    learn   b=0.5 // halves\n\n\tk5 = F( x )\n  y9 = h*(1 - b)*k5+x\n  k2=F(y9)\n  return x + b*k2*1/2\n";
    let text = text.replace("b*k2*1/2", "b/2*h * k2 + b^2*k5 - 0*k2")
        + "\nb — 1 evaluation\n  fields G, F\n  learn k1 = 1\n  k1 = F(x)\n  return k1*k1\n";
    let programs = parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let wanted = "a — 2 evaluations\n  learn b = 1/2\n  k1 = F(x)\n  y1 = x + h*(1 - b)*k1\n  k2 = F(y1)\n  return x + b^2*k1 + 1/2*b*h*k2\n\nb — 1 evaluation\n  fields G, F\n  learn k1 = 1\n  k1 = F(x)\n  return k1*k1\n";
    assert_eq!(printed(&programs), wanted);
}

/// The example of the reference is a program, and it is printed as it stands there.
#[test]
fn the_example_of_the_reference() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference.md");
    let page = std::fs::read_to_string(page).expect("docs/reference.md");
    let section = page.split("## Stage programs\n").nth(1).expect("a section");
    let lines = section.lines().skip_while(|l| !l.starts_with("    "));
    let block: Vec<&str> = lines.map_while(|l| l.strip_prefix("    ")).collect();
    let block = block.join("\n") + "\n";
    let programs = parse(&block).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(printed(&programs), block);
}

//! Proofs by files: stage programs as text, what is asked of them, and what is proved.
//!
//! A file of `programs/` begins with a comment that says what it shows, and lines `ask: …`; behind `---` stand programs, behind the next
//! `---` the answers. With `INSTA_UPDATE=always` the last part is written anew:
//! `INSTA_UPDATE=always cargo nextest run --workspace --test front -E 'test(programs::)'`.
//!
//! | `ask` | answer |
//! |---|---|
//! | `order` | the proved order, and the first condition that does not hold |
//! | `tableau` | the equivalent tableau, or why there is none |
//! | `adjoint` | the tableau of the adjoint method, and whether the method is symmetric |
//! | `stability` | R(z) of the equivalent tableau, and on which half of the axes it is at most 1 |
//! | `text` | the programs as they are printed |

use crate::slopes;
use crate::stage_text::{is_read_back, printed};
use odec_compiler::analysis::notation::{extent, polynomial};
use odec_compiler::analysis::text::tableau;
use odec_compiler::scheme::StageProgram;
use odec_compiler::scheme::expansion::expanded;
use odec_compiler::scheme::flow::Flow;
use odec_compiler::scheme::method::{LocatedStep, at_start, located_at};
use odec_compiler::scheme::per_use::SHARED;
use odec_compiler::scheme::text::parse;
use odec_numerics::Tableau;
use odec_numerics::stability::Stability;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Orders above are not looked for.
const HIGHEST: usize = 8;
/// Columns of a table.
const WIDTH: usize = 100;

/// A flow on the fields of a program; it says how they are called.
fn flow(program: &StageProgram) -> Rc<Flow> {
    let names: Vec<&str> = match &program.fields[..] {
        [] => vec!["F"],
        fields => fields.iter().map(|f| &*f.name).collect(),
    };
    let rates: Vec<String> = names.iter().map(|f| format!("{f}(x)")).collect();
    let (names, rates) = (names.join(", "), rates.join(" + "));
    slopes::flow(&format!(
        "scheme s({names}) {{ step x {{ return x + h*({rates}) }} }}"
    ))
}

/// The line of a program, with learned coefficients at their start; every step before it was alike.
fn line(program: &StageProgram) -> Result<LocatedStep, String> {
    let known = |c: &_, _| at_start(program, c);
    located_at(&flow(program), program, &SHARED, &known).map_err(|no| no.why)
}

fn equivalent(program: &StageProgram) -> Result<Tableau, String> {
    line(program)?.tableau().map_err(|no| no.why)
}

fn shown(t: &Tableau) -> String {
    tableau(t).parts(WIDTH).concat().join("\n")
}

fn order(program: &StageProgram) -> Result<String, String> {
    let mut expanded = expanded(&line(program)?).map_err(|no| no.why)?;
    let proof = expanded.prove(HIGHEST, None);
    Ok(match &proof.violation {
        None => format!("order ≥ {}", proof.order),
        Some(v) => format!("order {}: {}", proof.order, expanded.brief(v)),
    })
}

fn adjoint(program: &StageProgram) -> Result<String, String> {
    let t = equivalent(program)?;
    let own = match t.is_symmetric() {
        true => "symmetric",
        false => "not symmetric",
    };
    Ok(format!("{own}\n{}", shown(&t.adjoint())))
}

fn stability(program: &StageProgram) -> Result<String, String> {
    let s = Stability::new(&equivalent(program)?).ok_or("it has no stability function")?;
    let [over, under] = [&s.function.numerator, &s.function.denominator].map(polynomial);
    let real = extent(&s.real, false, "-");
    let imaginary = extent(&s.imaginary_squared, true, "±i ");
    Ok(format!(
        "R(z) = ({over})/({under})\n|R| ≤ 1 from 0 to {real}, and to {imaginary}"
    ))
}

fn answer(ask: &str, programs: &[StageProgram]) -> Result<String, String> {
    let one: fn(&StageProgram) -> Result<String, String> = match ask {
        "order" => order,
        "tableau" => |p: &StageProgram| Ok(shown(&equivalent(p)?)),
        "adjoint" => adjoint,
        "stability" => stability,
        "text" => return Ok(printed(programs)),
        _ => return Err(format!("nothing is called `{ask}`")),
    };
    let each = programs
        .iter()
        .map(|p| one(p).unwrap_or_else(|why| format!("none: {why}")));
    Ok(each.collect::<Vec<String>>().join("\n"))
}

/// What is asked, the programs, and the place where the answers begin.
struct Case {
    asks: Vec<String>,
    programs: Vec<StageProgram>,
    expected_at: usize,
}

fn case(text: &str) -> Result<Case, String> {
    let (head, rest) = text
        .split_once("---\n")
        .ok_or("no `---` before the programs")?;
    let (programs, expected) = rest
        .split_once("---\n")
        .ok_or("no `---` after the programs")?;
    let lines = head.lines().filter(|l| !l.starts_with("//"));
    let ask = |line: &str| {
        let asked = line.strip_prefix("ask: ").map(String::from);
        asked.ok_or(format!("`{line}` is no `ask: …`"))
    };
    let above = (head.lines().count() + 1) as u32;
    let programs = parse(programs).map_err(|mut e| {
        e.line += above;
        e.to_string()
    })?;
    Ok(Case {
        asks: lines.map(ask).collect::<Result<_, _>>()?,
        programs,
        expected_at: text.len() - expected.len(),
    })
}

fn answers(case: &Case) -> Result<String, String> {
    let one = |ask: &String| {
        let answer = answer(ask, &case.programs)?;
        Ok(format!("{ask}:\n{}\n", answer.trim_end()))
    };
    let all: Vec<String> = case.asks.iter().map(one).collect::<Result<_, String>>()?;
    Ok(all.join("\n"))
}

fn check(path: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let case = case(&text)?;
    is_read_back(&case.programs);
    let (made, expected) = (answers(&case)?, &text[case.expected_at..]);
    if made == expected {
        return Ok(());
    }
    if std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
        let text = format!("{}{made}", &text[..case.expected_at]);
        return std::fs::write(path, text).map_err(|e| e.to_string());
    }
    Err(format!(
        "expected\n{expected}\nmade\n{made}\nINSTA_UPDATE=always writes the answers anew"
    ))
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/front/programs");
    let entries = std::fs::read_dir(folder).expect("a folder of the tests");
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_file() {
    let wrong = |path: PathBuf| Some(format!("{}: {}", path.display(), check(&path).err()?));
    let wrong: Vec<String> = files().into_iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Each question has a file, and a file that is wrong is refused.
#[test]
fn wrong_files_are_refused() {
    let texts = files()
        .into_iter()
        .map(|p| std::fs::read_to_string(p).expect("a text"));
    let texts: String = texts.collect();
    for ask in ["order", "tableau", "adjoint", "stability", "text"] {
        assert!(texts.contains(&format!("ask: {ask}\n")), "{ask}");
    }
    let refused = |text: &str| case(text).and_then(|c| answers(&c)).expect_err(text);
    let program = "s — 1 evaluation\n  k1 = F(x)\n  return x + h*k1\n";
    assert_eq!(
        refused(&format!("ask: ordr\n---\n{program}---\n")),
        "nothing is called `ordr`"
    );
    assert_eq!(
        refused(&format!("order\n---\n{program}---\n")),
        "`order` is no `ask: …`"
    );
    assert_eq!(
        refused(&format!(
            "ask: order\n---\n{}---\n",
            program.replace("*k1", "*k2")
        )),
        "line 5, column 16: this program makes no value `k2`"
    );
    assert_eq!(
        refused(&format!("ask: order\n---\n{program}")),
        "no `---` after the programs"
    );
}
